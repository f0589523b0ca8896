package proxy

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// signedToken returns a token, with the claim u if it is given.
func signedToken(t *testing.T, secret string, user ...string) string {
	t.Helper()
	claims := jwt.MapClaims{"exp": time.Now().Add(time.Hour).Unix()}
	if len(user) > 0 {
		claims["u"] = user[0]
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

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
		{401, "Authorization: Bearer " + signedToken(t, "0123456789abcdef0123456789abcdef"), realm + `, error="invalid_token", error_description="the token lacks the claim"`},
		{401, "Authorization: Bearer " + signedToken(t, "another secret of thirty-two bytes"), realm + `, error="invalid_token", error_description="the token has an invalid signature, or one of an algorithm that is not accepted"`},
		{400, "Authorization: Bearer a b", ""},
	} {
		rec := p.sends(c.status, "GET", "http://api.example/a", c.line)
		p.hasField(rec, "WWW-Authenticate", c.challenge)
		if own := rec.Body.String() == "log in" && rec.Header().Get("X-Error") == "401"; own != (c.status == http.StatusUnauthorized) {
			t.Errorf("%s: %s", c.line, rec.Body)
		}
	}
}
