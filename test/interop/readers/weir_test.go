//go:build readers

package readers

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
)

// secret signs the tokens of the route token.
const secret = "a secret of at least thirty-two bytes"

// stolen is a number that the list stolen refuses wherever it is read.
const stolen = "13900000000"

// config limits each number to one request an hour on every route, beside a route
// for all the rest that has no limits. What is missing is not counted, which is the
// hardest for Weir: whatever it does not see goes through.
const config = `
version: 1
listen: {http: "LISTEN", h2c: true}
admin: {http: "ADMIN"}
jwt: {secret: "` + secret + `"}
keys:
  header: {from: header:X-Phone, normalize: digits, on_missing: skip, set_header: X-Counted}
  query: {from: query:phone_no, normalize: digits, on_missing: skip, set_header: X-Counted}
  form: {from: form:phone_no, normalize: digits, on_missing: skip, set_header: X-Counted}
  json: {from: json:/phone_no, normalize: digits, on_missing: skip, set_header: X-Counted}
  cookie: {from: cookie:phone_no, on_missing: skip, set_header: X-Counted}
  path: {from: path:phone, on_missing: skip, set_header: X-Counted}
  told:
    from: header:X-Phone
    normalize: {as: e164, default_region: CN}
    on_missing: skip
    set_header: X-Phone-E164
  sub: {from: jwt:sub, on_missing: skip, set_header: X-Counted}
  any-header: {from: header:X-Phone, normalize: digits, on_missing: skip}
  any-query: {from: query:phone_no, normalize: digits, on_missing: skip}
lists:
  stolen-header: {key: header, values: ["` + stolen + `"], action: deny}
  stolen-query: {key: query, values: ["` + stolen + `"], action: deny}
  stolen-form: {key: form, values: ["` + stolen + `"], action: deny}
  stolen-json: {key: json, values: ["` + stolen + `"], action: deny}
  stolen-cookie: {key: cookie, values: ["` + stolen + `"], action: deny}
upstreams:
  reader: {targets: ["READER"], timeouts: {response: 2s}} # some readers answer nothing at all
routes:
  - name: header
    match: {methods: [POST], path: /v1/header}
    upstream: reader
    lists: [stolen-header]
    limits: [{name: phone, key: header, rate: 1/1h}]
  - name: query
    match: {methods: [GET], path: /v1/query}
    upstream: reader
    lists: [stolen-query]
    limits: [{name: phone, key: query, rate: 1/1h}]
  - name: form
    match: {methods: [POST], path: /v1/form}
    upstream: reader
    lists: [stolen-form]
    limits: [{name: phone, key: form, rate: 1/1h}]
  - name: json
    match: {methods: [POST], path: /v1/json}
    upstream: reader
    lists: [stolen-json]
    limits: [{name: phone, key: json, rate: 1/1h}]
  - name: cookie
    match: {methods: [POST], path: /v1/cookie}
    upstream: reader
    lists: [stolen-cookie]
    limits: [{name: phone, key: cookie, rate: 1/1h}]
  - name: users
    match: {methods: [GET], path: "/v1/users/{phone}"}
    upstream: reader
    limits: [{name: phone, key: path, rate: 1/1h}]
  - name: told
    match: {methods: [POST], path: /v1/told}
    upstream: reader
    limits: [{name: phone, key: told, rate: 1/1h}]
  - name: token
    match: {methods: [GET], path: /v1/token}
    upstream: reader
    limits: [{name: phone, key: sub, rate: 1/1h}]
  - name: mark
    match: {methods: [POST], path: /v1/mark}
    upstream: reader
    idempotency: {header: Idempotency-Key, life: 1h, repeats: 5}
    limits: [{name: phone, key: header, rate: 1/1h}]
  - name: cost
    match: {methods: [GET], path: /v1/cost}
    upstream: reader
    limits: [{name: phone, key: header, rate: 10/1h, cost: "query:cost_no", max_cost: 10}]
  - name: any
    match: {path: /v1/any}
    upstream: reader
    limits:
      - {name: header, key: any-header, rate: 1/1h}
      - {name: query, key: any-query, rate: 1/1h}
  - name: pay
    match: {host: pay.example.com, methods: [POST], path: /v1/pay}
    upstream: reader
    limits: [{name: phone, key: header, rate: 1/1h}]
  - name: rest
    match: {path: /*}
    upstream: reader
`

// through starts a Weir before a reader.
func through(t testing.TB, reader string) (addr string) {
	t.Helper()
	addr, _ = free(t)
	admin, _ := free(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	text := strings.NewReplacer("LISTEN", addr, "ADMIN", admin, "READER", "http://"+reader).Replace(config)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(installed(t, "bin/weir"), "-c", file)
	cmd.Dir = dir
	launch(t, admin, cmd)
	await.Until(t, "weir is ready", func() bool {
		answer, err := http.Get("http://" + admin + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return addr
}
