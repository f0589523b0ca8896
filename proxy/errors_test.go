package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// Errors are said in the words of the route, else of the file, else of Weir; the more particular first.
func TestErrors_OwnTexts(t *testing.T) {
	p := newProxy(t, `
errors:
  4xx: {body: "file 4xx {status}"}
  404: {body: '{"error": "nothing here", "id": "{request_id}"}', content_type: application/json, headers: {X-Error: "{status}"}}
  5xx: {detail: "Call us about {request_id}."}
upstreams: {gone: "http://127.0.0.1:1", demo: echo}
routes:
  - {name: gone, match: {path: /gone}, upstream: gone}
  - {name: get, match: {path: /get, methods: [GET]}, upstream: demo}
  - name: own
    match: {path: /own}
    upstream: demo
    limits: [{key: "header:X-Id", rate: 1/1h}]
    errors: {400: {body: "own 400, {retry_after} s"}}
  - {name: late, match: {path: /late}, upstream: gone, errors: {502: {body: "own 502"}}}
`)
	for _, c := range []struct {
		status        int
		method, path  string
		body, content string
	}{
		{404, "GET", "/nowhere", `{"error": "nothing here", "id": "`, "application/json"},
		{405, "POST", "/get", "file 4xx 405", "text/plain; charset=utf-8"},
		{400, "GET", "/own", "own 400, 0 s", "text/plain; charset=utf-8"},
		{502, "GET", "/late", "own 502", "text/plain; charset=utf-8"},
		{502, "GET", "/gone", `"detail":"Call us about `, "application/problem+json"},
	} {
		rec := p.sends(c.status, c.method, c.path)
		if h := rec.Header(); !strings.Contains(rec.Body.String(), c.body) || h.Get("Content-Type") != c.content || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %s %v; want %s as %s", c.path, rec.Body, h, c.body, c.content)
		}
	}
	if h := p.send("POST", "/get").Header(); h.Get("Allow") != "GET" || h.Get("X-Error") != "" {
		t.Errorf("405: %v", h)
	}
	if h := p.send("GET", "/nowhere").Header(); h.Get("X-Error") != "404" {
		t.Errorf("404: %v", h)
	}
	p.sends(200, "GET", "/own", "X-Id: a")
	if rec := p.sends(429, "GET", "/own", "X-Id: a"); !strings.Contains(rec.Body.String(), "quota") {
		t.Errorf("the refusal of a limit is %s", rec.Body)
	}
}

// A request without an acceptable token is answered with 401 and what is wrong (RFC 6750). One whose
// Authorization can be read in two ways is malformed.
func TestErrors_TokenIsChallenged(t *testing.T) {
	p := newProxy(t, "jwt: {secret: 0123456789abcdef0123456789abcdef}\n"+
		`errors: {401: {body: "log in", headers: {X-Error: "{status}"}}}`+"\n"+limitYAML(`{key: "jwt:tenant", rate: 1/1h}`))
	const realm = `Bearer realm="api.example"`
	for _, c := range []struct {
		status          int
		line, challenge string
	}{
		{401, "X-Nothing: 1", realm},
		{401, "Authorization: Basic YTpi", realm},
		{401, "Authorization: Bearer abc", realm + `, error="invalid_token", error_description="the token is malformed"`},
		{401, bearer(t, "0123456789abcdef0123456789abcdef", jwt.MapClaims{}), realm + `, error="invalid_token", error_description="the token lacks the claim"`},
		{401, bearer(t, "another secret of thirty-two bytes", jwt.MapClaims{}), realm + `, error="invalid_token", error_description="the token has an invalid signature, or one of an algorithm that is not accepted"`},
		{400, "Authorization: Bearer a b", ""},
	} {
		rec := p.sends(c.status, "GET", "http://api.example/a", c.line)
		p.hasField(rec, "WWW-Authenticate", c.challenge)
		if own := rec.Body.String() == "log in" && rec.Header().Get("X-Error") == "401"; own != (c.status == http.StatusUnauthorized) {
			t.Errorf("%s: %s", c.line, rec.Body)
		}
	}
}

// as reads a field of a log line as what it was written from.
func as[T any](t *testing.T, line map[string]any, field string) (v T) {
	t.Helper()
	text, err := json.Marshal(line[field])
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatalf("%s of %v: %v", field, line, err)
	}
	return v
}

// A loggedRate is a rate that refused, as the log tells.
type loggedRate struct {
	Rate, Key, Masked, Limit string
	Banned                   bool
	ShadowError              bool `json:"unfit"`
}

func TestRefusals_AllThatRefusedAreNamed(t *testing.T) {
	w := newProxy(t, `
keys: {phone: {from: header:X-Phone, sensitive: true}}
`+limitYAML(`{name: phone, key: phone, rates: [1/1h, 2/1d]}, {name: all, key: global, rate: 9/1h}, {name: ip, key: client_ip, rate: 1/1m, penalty: {ban: 1h, after: 1}}`))
	w.sendsAll([]int{200, 429}, "GET", "/a", "X-Phone: 13800138000")
	w.sends(429, "GET", "/a", "X-Phone: 2")
	lines := w.lines("request")
	line, also := lines[1], as[[]loggedRate](t, lines[1], "also")
	if line["limit"] != "phone" || line["rate"] != "phone-1h" || line["masked"] == nil || line["banned"] != nil || line["ban_began"] != true {
		t.Errorf("line %v; want phone-1h with its masked key, and that a ban began", line)
	}
	if len(also) != 1 || also[0].Rate != "ip-1m" || also[0].Key == line["key"] || len(also[0].Key) != keyDigits || !also[0].Banned {
		t.Errorf("also %+v; want ip-1m with its own key, banned", also)
	}
	if line := lines[2]; line["rate"] != "ip-1m" || line["banned"] != true || line["also"] != nil {
		t.Errorf("line %v; want the ban of ip-1m alone", line)
	}
	if line := lines[0]; line["rate"] != nil || line["also"] != nil || line["shadow"] != nil {
		t.Errorf("line %v of a request that nobody refused", line)
	}
}

func TestRefusals_OfLimitsInShadowMode(t *testing.T) {
	w := newProxy(t, `
keys: {phone: {from: header:X-Phone, sensitive: true}}
`+limitYAML(`{name: watch, key: phone, rates: [1/1h, 5/1d], mode: shadow}, {name: token, key: header:X-Token, rate: 9/1h, mode: shadow}`))
	w.sends(200, "GET", "/a", "X-Phone: 13800138000", "X-Token: t")
	w.sends(200, "GET", "/a", "X-Phone: 13800138000")
	w.sends(200, "GET", "/a", "X-Phone: 2", "X-Token: t")
	lines := w.lines("request")
	got := as[[]loggedRate](t, lines[1], "shadow")
	if len(got) != 2 || got[0].Rate != "watch-1h" || len(got[0].Key) != keyDigits || got[0].Masked == "" || got[1] != (loggedRate{Limit: "token", ShadowError: true}) {
		t.Errorf("shadow %+v; want watch-1h with its masked key, and that token could not be asked", got)
	}
	if lines[0]["shadow"] != nil || lines[2]["shadow"] != nil || lines[1]["limit"] != nil {
		t.Errorf("lines %v; want shadow in the second alone, which nobody refused", lines)
	}
}

// Refusals that differ only in their ids are rendered once. Each has its own id in its fields and in its body, and one
// Retry-After.
func TestRefusals_RepeatedOnesHaveTheirOwnIDs(t *testing.T) {
	w := newProxy(t, "client_ip: {trusted_proxies: [192.0.2.0/24]}\n"+limitYAML(`{name: all, key: global, rate: 1/1m}`))
	w.sends(200, "GET", "/a")
	seen := map[string]bool{}
	for i := range 400 {
		var lines []string
		given := ""
		if i%3 == 2 {
			given = fmt.Sprintf("given-%020d", i) // as long as ours
			lines = append(lines, "X-Request-Id: "+given)
		}
		rec := w.sends(429, "GET", "/a", lines...)
		var body struct {
			ID       string `json:"request_id"`
			Detail   string
			Violated []string `json:"violated-policies"`
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
			t.Fatalf("%s: %v", rec.Body, err)
		}
		id, wait := rec.Header().Get("X-Request-Id"), rec.Header().Get("Retry-After")
		if id != body.ID || given != "" && id != given || seen[id] {
			t.Errorf("X-Request-Id %s, in the body %s; want one of its own, given %q", id, body.ID, given)
		}
		seen[id] = true
		if want := "Too many requests. Try again in " + wait + " s."; body.Detail != want || !slices.Equal(body.Violated, []string{"all"}) {
			t.Errorf("%s by %v; want %s", body.Detail, body.Violated, want)
		}
		if h := rec.Header(); h.Get("Content-Length") != strconv.Itoa(rec.Body.Len()) || !strings.HasPrefix(h.Get("RateLimit"), `"all";r=0;t=`) || h.Get("RateLimit-Policy") != `"all";q=1;w=60` {
			t.Errorf("fields %v of %d bytes", h, rec.Body.Len())
		}
	}
}
