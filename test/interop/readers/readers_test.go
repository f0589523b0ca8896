//go:build readers

package readers

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/rounds"
)

const (
	variations = 5_000 // for each reader, when nothing else is asked for
	workers    = 6     // requests under way at a time
	shown      = 3     // leaks of one kind that are written out
)

// routes are those that have limits.
func routes() []string {
	return []string{"header", "query", "form", "json", "cookie", "users", "told", "token", "mark", "cost", "any-header", "any-query", "pay"}
}

// Without this the rest could pass because nobody reads anything: what is plain
// gets through once, the reader reads it, and the second time it is refused.
func plainIsRead(t *testing.T, j judge) {
	t.Helper()
	for i, route := range routes() {
		number := fmt.Sprintf("1310000%04d", i)
		a, err := send(j.weir, plain(route, number))
		if err != nil || !a.acted {
			t.Fatalf("a plain request to %s got %d, %v", route, a.status, err)
		}
		found := probes(a)
		if len(found) == 0 {
			t.Fatalf("of a plain request to %s nothing was read: %+v", route, a)
		}
		for _, p := range found {
			if !strings.Contains(p.text+" "+strings.Join(subject(p.text), ""), number) && route != "cost" {
				t.Errorf("of a plain request to %s the reader read %q, want %q", route, p.text, number)
			}
		}
		if a, err := send(j.weir, plain(route, number)); err != nil || a.status != 429 {
			t.Errorf("a second plain request to %s got %d, %v; want 429", route, a.status, err)
		}
	}
}

// TestReaders_ReadNothingThatWasNotCounted is what this folder is for.
func TestReaders_ReadNothingThatWasNotCounted(t *testing.T) {
	seed, count := rounds.Setting(t, "WEIR_READERS_SEED", 1), rounds.Setting(t, "WEIR_READERS_COUNT", variations)
	fmt.Printf("seed %d, %d variations for each reader\n", seed, count)
	for _, r := range readers() {
		t.Run(r.name, func(t *testing.T) {
			begun := time.Now()
			upstream := r.start(t)
			j := judge{weir: through(t, upstream), upstream: upstream}
			plainIsRead(t, j)
			s := j.all(uint64(seed), count)
			fmt.Printf("%-20s %d variations in %v: %d acted on, %d refused or not read, %d leaks\n",
				r.name, count, time.Since(begun).Round(time.Second), s.acted.Load(), int64(count)-s.acted.Load(), len(s.leaks))
			if s.acted.Load() < int64(count/20) {
				t.Errorf("only %d of %d were acted on, which shows little", s.acted.Load(), count)
			}
			s.report(t)
		})
	}
}

// A sum is what came of all variations.
type sum struct {
	acted atomic.Int64

	mu     sync.Mutex // guards what follows
	leaks  []*leak
	silent []string // requests without an answer
}

// all judges variations by several workers at a time.
func (j judge) all(seed uint64, count int) *sum {
	s := new(sum)
	var next atomic.Int64
	var done sync.WaitGroup
	for range workers {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				m, prime := variation(seed, i)
				begun := time.Now()
				found, acted, err := j.judge(m, prime)
				if acted {
					s.acted.Add(1)
				}
				s.mu.Lock()
				if found != nil {
					s.leaks = append(s.leaks, found)
				}
				if err != nil && time.Since(begun) >= answerTimeout {
					s.silent = append(s.silent, fmt.Sprintf("%v: %v", m, err))
				}
				s.mu.Unlock()
			}
		})
	}
	done.Wait()
	return s
}

// report fails for each kind of leak, and shows some of them.
func (s *sum) report(t *testing.T) {
	t.Helper()
	kinds := map[string][]*leak{}
	for _, l := range s.leaks {
		kinds[l.what] = append(kinds[l.what], l)
	}
	var names []string
	for name := range kinds {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		var b strings.Builder
		fmt.Fprintf(&b, "LEAK %s (%d)", name, len(kinds[name]))
		for _, l := range kinds[name][:min(shown, len(kinds[name]))] {
			fmt.Fprintf(&b, "\n    %v\n    %s; counted: %q", l.message, l.probe, l.answer.read["counted"])
		}
		t.Error(b.String())
	}
	for _, text := range s.silent {
		t.Errorf("no answer within %v: %s", answerTimeout, text)
	}
}

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

// A client is a body as a library writes it, with the number in phone_no.
type client struct {
	name  string
	route string
	kind  string
	body  func(number string) string
}

// clients are libraries whose forms differ from those of browsers, by their sources, and bodies of
// old clients.
func clients() []client {
	const guid, apache, dart = "7e3b9a52-5d0f-4f3c-8a55-6a2c6f1d9b10", "Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb", "dart-http-boundary-K+w_.1nRz0Qy8GmVb3kXo5uT7sJd2fHc9LpEaWiNqYrZvMgBtC4"
	const d = "Content-Disposition: form-data; "
	parts := func(boundary string, all ...part) func(string) string {
		return func(number string) string {
			return strings.ReplaceAll(assemble(boundary, all), "NUMBER", number)
		}
	}
	text := func(body string) func(string) string {
		return func(number string) string { return strings.ReplaceAll(body, "NUMBER", number) }
	}
	return []client{
		// dotnet/runtime, src/libraries/System.Net.Http: MultipartFormDataContent with StringContent and ByteArrayContent.
		{".NET", "form", `multipart/form-data; boundary="` + guid + `"`, parts(guid,
			part{"Content-Type: text/plain; charset=utf-8\r\n" + d + "name=phone_no", "NUMBER"},
			part{d + "name=photo; filename=a.png; filename*=utf-8''a.png", "\x89PNG"})},
		// apache/httpcomponents-client, httpmime 4.5: FormBodyPartBuilder in strict mode.
		{"Apache HttpClient 4", "form", "multipart/form-data; boundary=" + apache, parts(apache,
			part{d + "name=\"phone_no\"\r\nContent-Type: text/plain; charset=ISO-8859-1\r\nContent-Transfer-Encoding: 8bit", "NUMBER"},
			part{d + "name=\"photo\"; filename=\"a.png\"\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary", "\x89PNG"})},
		// The same, httpclient5: HttpStrictMultipart.
		{"Apache HttpClient 5", "form", "multipart/form-data; boundary=" + apache + "; charset=UTF-8", parts(apache,
			part{d + "name=\"phone_no\"\r\nContent-Type: text/plain; charset=ISO-8859-1", "NUMBER"})},
		// dart-lang/http, pkgs/http: MultipartRequest.
		{"Dart", "form", "multipart/form-data; boundary=" + dart, parts(dart,
			part{"content-disposition: form-data; name=\"name\"\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-transfer-encoding: binary", "J\u00fcrgen"},
			part{"content-disposition: form-data; name=\"phone_no\"", "NUMBER"})},
		{"a semicolon after the boundary", "form", "multipart/form-data; boundary=xyz;", parts("xyz", part{d + `name="phone_no"`, "NUMBER"})},
		{"a line break after the form", "form", urlencoded, text("x=1&phone_no=NUMBER\r\n")},
		{"a form in ASCII", "form", urlencoded + "; charset=us-ascii", text("phone_no=NUMBER")},
		{"a byte order mark", "json", "application/json", text("\ufeff{\"phone_no\":\"NUMBER\"}")},
		{"text/json", "json", "text/json", text(`{"phone_no":"NUMBER"}`)},
		{"JSON in ASCII", "json", "application/json; charset=us-ascii", text(`{"phone_no":"NUMBER"}`)},
	}
}

// What these clients write is accepted and counted under the number that the reader reads, if it
// reads the body at all.
func TestReaders_ReadWhatClientsWrite(t *testing.T) {
	for _, r := range readers() {
		t.Run(r.name, func(t *testing.T) {
			upstream := r.start(t)
			weir := through(t, upstream)
			var unread []string
			for i, c := range clients() {
				number := fmt.Sprintf("1320000%04d", i)
				write := func() (answer, error) {
					m := request("POST", "/v1/"+c.route)
					m.form(c.kind, c.body(number))
					return send(weir, m)
				}
				a, err := write()
				if err != nil || a.status == 429 {
					t.Errorf("%s got %d, %v; want the reader's answer", c.name, a.status, err)
				}
				if len(a.read[c.route]) == 0 {
					unread = append(unread, c.name)
				}
				for _, text := range a.read[c.route] {
					if !slices.Contains(digits(text), number) {
						t.Errorf("%s: the reader read %q, want %s", c.name, text, number)
					}
				}
				if a, err := write(); err != nil || a.status != 429 {
					t.Errorf("%s a second time got %d, %v; want 429: the first was counted", c.name, a.status, err)
				}
			}
			fmt.Printf("%-20s of %d clients did not read %q\n", r.name, len(clients()), unread)
			if len(unread) > len(clients())-3 {
				t.Errorf("the reader read only what %d clients write, which shows little", len(clients())-len(unread))
			}
		})
	}
}
