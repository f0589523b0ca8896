package test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// spent is the one number, and the one client, whose only request of an hour has
// been made; unspent is nobody's yet.
const (
	spent   = "+8613800138000"
	unspent = "+8613900139000"
	spender = "203.0.113.7"
)

// guarded limits one number and one client in every place where it may stand. What
// no route takes reaches the same upstream unlimited, so that a path that only
// looks like another one is a way round.
const guarded = `
client_ip: {trusted_proxies: [127.0.0.1], ipv6_prefix: 64}
keys:
  json: {from: json:/phone, must_equal: header:X-Phone, normalize: {as: e164, default_region: CN}}
  form: {from: form:phone, normalize: {as: e164, default_region: CN}}
  header: {from: header:X-Phone, normalize: {as: e164, default_region: CN}}
  query: {from: query:phone, normalize: {as: e164, default_region: CN}}
  path: {from: path:phone, normalize: {as: e164, default_region: CN}}
  id: path:id
  user: {from: header:X-User, normalize: [trim, lower]}
  sid: cookie:sid
routes:
  - {name: json, match: {path: /v1/json}, upstream: URL, limits: [{key: json, rate: 1/1h}]}
  - {name: form, match: {path: /v1/form}, upstream: URL, limits: [{key: form, rate: 1/1h}]}
  - {name: header, match: {path: /v1/header}, upstream: URL, limits: [{key: header, rate: 1/1h}]}
  - {name: query, match: {path: /v1/query}, upstream: URL, limits: [{key: query, rate: 1/1h}]}
  - {name: call, match: {path: "/v1/call/{phone}"}, upstream: URL, limits: [{key: path, rate: 1/1h}]}
  - {name: account, match: {methods: [GET], path: "/v1/account/{id}"}, upstream: URL, limits: [{key: id, rate: 1/1h}]}
  - {name: order, match: {methods: [GET], path: "/v1/order/{id:[0-9]+}"}, upstream: URL, limits: [{key: id, rate: 1/1h}]}
  - {name: user, match: {path: /v1/user}, upstream: URL, limits: [{key: user, rate: 1/1h}]}
  - {name: cookie, match: {path: /v1/cookie}, upstream: URL, limits: [{key: sid, rate: 1/1h}]}
  - {name: ip, match: {path: /v1/ip}, upstream: URL, limits: [{key: client_ip, rate: 1/1h}]}
  - {name: rest, match: {path: /*}, upstream: URL}
`

// An attempt is one request on the wire that an upstream could take for the spent
// number's or client's.
type attempt struct {
	name  string
	bytes string
	want  []int // statuses, any of them; none of them is the upstream's
}

// rawRequest writes one with these header lines; a body gets its length, unless a line
// says how long it is.
func rawRequest(line, body string, header ...string) string {
	all := append([]string{line + " HTTP/1.1", "Host: x", "Connection: close"}, header...)
	framed := slices.ContainsFunc(header, func(h string) bool {
		name, _, _ := strings.Cut(strings.ToLower(h), ":")
		return name == "content-length" || name == "transfer-encoding"
	})
	if body != "" && !framed {
		all = append(all, fmt.Sprint("Content-Length: ", len(body)))
	}
	return strings.Join(all, "\r\n") + "\r\n\r\n" + body
}

func jsonRequest(body string, header ...string) string {
	return rawRequest("POST /v1/json", body, append([]string{"Content-Type: application/json"}, header...)...)
}

// phoneRequest is a body that names a phone.
func phoneRequest(number string) string { return jsonRequest(`{"phone": "` + number + `"}`) }

func formRequest(body string, header ...string) string {
	return rawRequest("POST /v1/form", body, append([]string{"Content-Type: application/x-www-form-urlencoded"}, header...)...)
}

// No attempt reaches the upstream: each is refused, or counted under the key that
// is spent.
func TestBypass(t *testing.T) {
	t.Parallel()
	api := startBackend(t, func(http.ResponseWriter, *http.Request) {})
	w := start(t, strings.ReplaceAll(guarded, "URL", api.URL))
	for _, first := range []string{
		phoneRequest(spent), formRequest("phone=%2B8613800138000"), rawRequest("POST /v1/header", "", "X-Phone: "+spent), rawRequest("GET /v1/query?phone=%2B8613800138000", ""),
		rawRequest("GET /v1/call/"+spent, ""), rawRequest("GET /v1/account/919905", ""), rawRequest("GET /v1/order/919905", ""), rawRequest("GET /v1/user", "", "X-User: alice"), rawRequest("GET /v1/cookie", "", "Cookie: sid=1"),
		rawRequest("GET /v1/ip", "", "X-Forwarded-For: "+spender), rawRequest("GET /v1/ip", "", "X-Forwarded-For: 2001:db8::1"),
	} {
		if status, _ := rawResponse(t, w, first); status != http.StatusOK {
			t.Fatalf("the first request is answered %d:\n%s", status, first)
		}
	}
	rows, names := bypassAttempts(), map[string]bool{}
	if len(rows) < 60 {
		t.Errorf("%d attempts, want 60 at least", len(rows))
	}
	before := api.hits()
	for _, row := range rows {
		if names[row.name] {
			t.Errorf("%s stands there twice", row.name)
		}
		names[row.name] = true
		status, body := rawResponse(t, w, row.bytes)
		if !slices.Contains(row.want, status) || api.hits() != before {
			t.Errorf("%s: answered %d, want one of %v; %d requests reached the upstream\n%.300q\n%s", row.name, status, row.want, api.hits()-before, row.bytes, body)
			before = api.hits()
		}
	}
	if status, body := rawResponse(t, w, rawRequest("POST /v1/header", "", "X-Phone: "+unspent)); status != http.StatusOK {
		t.Errorf("the unspent number is answered %d %s, want 200: no attempt used it", status, body)
	}
}

// rawResponse sends bytes as they are and returns the answer.
func rawResponse(t *testing.T, w *weir, text string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testTimeout))
	io.WriteString(conn, text)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}
