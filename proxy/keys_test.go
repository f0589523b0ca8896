package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// sms counts codes by the phone number in the body.
const sms = `
upstreams: {demo: echo}
keys:
  phone:
    from: json:/phone
    must_equal: header:X-Phone
    normalize: {as: e164, default_region: CN, allow_types: [mobile]}
    set_header: X-Phone-E164
    sensitive: true
  country: {of: phone, part: country}
routes:
  - name: send
    match: {path: /send}
    upstream: demo
    body: {max: 1KiB}
    limits: [{key: phone, rate: 1/1h}, {key: country, rate: 100/1h}]
`

const typeJSON = "Content-Type: application/json"

// TestKeys_EverySpellingOfANumberIsCounted: after one code has gone out, no way
// of writing the same number gets another one.
func TestKeys_EverySpellingOfANumberIsCounted(t *testing.T) {
	w := newProxy(t, sms)
	w.sends(200, "POST", "/send", typeJSON, `{"phone":"+8613800138000"}`)
	for _, body := range []string{
		`{"phone":"13800138000"}`,
		`{"phone":"008613800138000"}`,
		`{"phone":"8613800138000"}`,
		`{"phone":"+86 138-0013-8000"}`,
		`{"phone":"(+86) 138 0013 8000"}`,
		`{"phone":"＋86 138－0013－8000"}`,
		`{"phone":"tel:+86-138-0013-8000"}`,
		`{"phone":13800138000}`,
		`{"phone":"13800138000"}`,
		`{"a":{"phone":"+8613900139000"},"phone":"13800138000"}`,
	} {
		w.sends(429, "POST", "/send", typeJSON, body)
	}
	w.sends(200, "POST", "/send", typeJSON, `{"phone":"13900139000"}`)
}

// TestKeys_WhatCanBeReadInTwoWaysIsRefused: nothing of this reaches the upstream.
func TestKeys_WhatCanBeReadInTwoWaysIsRefused(t *testing.T) {
	w := newProxy(t, sms)
	for _, lines := range [][]string{
		{typeJSON, `{"phone":"13800138000","phone":"13900139000"}`},
		{typeJSON, `{"phone":"13800138000","Phone":"13900139000"}`},
		{typeJSON, `{"phone":"13800138000"}{"phone":"13900139000"}`},
		{typeJSON, `{"phone":"13800138000"`},
		{typeJSON, `{"phone":["13800138000"]}`},
		{typeJSON, `{"phone":"13800138000abc"}`},
		{typeJSON, `{"phone":"call 13800138000"}`},
		{typeJSON, `{"phone":"８６１３８００１３８０００"}`},
		{typeJSON, `{"phone":"+86 138 0013 8000 ext. 5"}`},
		{typeJSON, `{"phone":"12345"}`},
		{typeJSON, `{"phone":"+12125550123"}`},
		{typeJSON, `{"phone":null}`},
		{typeJSON, `{}`},
		{typeJSON, `phone=13800138000`},
		{"Content-Type: text/plain", `{"phone":"13800138000"}`},
		{`{"phone":"13800138000"}`},
		{typeJSON, typeJSON, `{"phone":"13800138000"}`},
		{typeJSON, "Content-Encoding: gzip", `{"phone":"13800138000"}`},
		{"Content-Type: application/json; charset=utf-7", `{"phone":"13800138000"}`},
		{typeJSON, "X-Phone: 13900139000", `{"phone":"13800138000"}`},
		{typeJSON, "X-Phone: 13800138000", "X-Phone: 13900139000", `{"phone":"13800138000"}`},
		{typeJSON, "X-Phone: 13800138000"},
	} {
		w.sends(400, "POST", "/send", lines...)
	}
	w.sends(200, "POST", "/send", typeJSON, "X-Phone: +86 138 0013 8000", `{"phone":"13800138000"}`)
	w.sends(413, "POST", "/send", typeJSON, `{"phone":"13800138000","x":"`+strings.Repeat("x", 1024)+`"}`)
}

func TestKeys_SensitiveOnesAreShownMasked(t *testing.T) {
	w := newProxy(t, sms)
	for range 2 {
		w.send("POST", "/send", typeJSON, `{"phone":"138 0013 8000"}`)
	}
	lines := w.lines("request")
	if got := lines[1]["masked"]; got != "phone=+86138****8000" || lines[0]["masked"] != nil {
		t.Errorf("lines %v; want the number of the refused request masked", lines)
	}
	if strings.Contains(w.log.String(), "13800138000") {
		t.Errorf("the number is in the log:\n%s", w.log.String())
	}
}

func TestKeys_UpstreamGetsTheBodyAndTheNumber(t *testing.T) {
	w := newProxy(t, sms)
	sent := `{ "phone" : "138 0013 8000" , "text":"ü" }`
	seen := echoed(t, w.sends(200, "POST", "/send", typeJSON, "X-Phone-E164: +8613900139000", sent))
	if seen.Body != sent {
		t.Errorf("the upstream got %q; want %q, byte for byte", seen.Body, sent)
	}
	if got := fmt.Sprint(seen.Headers["X-Phone-E164"]); got != "[+8613800138000]" {
		t.Errorf("X-Phone-E164 = %s; want the number that was counted, and nothing the client sent", got)
	}
}

func TestKeys_FormCookieHostMethod(t *testing.T) {
	w := newProxy(t, `
upstreams: {demo: echo}
routes:
  - {match: {path: /form}, upstream: demo, limits: [{key: form:user, rate: 1/1h}]}
  - {match: {path: /cookie}, upstream: demo, limits: [{key: cookie:sid, rate: 1/1h}]}
  - {match: {path: /host}, upstream: demo, limits: [{key: host, rate: 1/1h}]}
  - {match: {path: /method}, upstream: demo, limits: [{key: method, rate: 1/1h}]}
`)
	form := "Content-Type: application/x-www-form-urlencoded"
	w.sends(200, "POST", "/form", form, "user=a&x=1")
	w.sends(429, "POST", "/form", form, "x=2&user=%61")
	w.sends(400, "POST", "/form", form, "user=a&user=b")
	w.sends(200, "GET", "/cookie", "Cookie: a=1; sid=one")
	w.sends(429, "GET", "/cookie", "Cookie: sid=one; b=2")
	w.sends(400, "GET", "/cookie", "Cookie: sid=one; sid=two")
	w.sends(200, "GET", "http://one.example/host")
	w.sends(429, "GET", "http://ONE.example:80/host")
	w.sends(200, "GET", "http://two.example/host")
	w.sends(200, "GET", "/method")
	w.sends(429, "GET", "/method")
	w.sends(200, "PUT", "/method")
}

func TestKeys_TokensAreVerified(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	w := newProxy(t, "jwt: {secret: "+secret+"}\n"+limitYAML("{key: jwt:sub, rate: 1/1h}"))
	token := func(method jwt.SigningMethod, key any, user string, end time.Duration) string {
		signed, err := jwt.NewWithClaims(method, jwt.MapClaims{"sub": user, "exp": time.Now().Add(end).Unix()}).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return "Authorization: Bearer " + signed
	}
	alice := token(jwt.SigningMethodHS256, []byte(secret), "alice", time.Hour)
	w.sends(200, "GET", "/a", alice)
	w.sends(429, "GET", "/a", alice)
	w.sends(429, "GET", "/a", token(jwt.SigningMethodHS512, []byte(secret), "alice", 2*time.Hour))
	w.sends(200, "GET", "/a", token(jwt.SigningMethodHS256, []byte(secret), "bob", time.Hour))
	for _, line := range []string{
		token(jwt.SigningMethodHS256, []byte("another secret of thirty-two bytes"), "eve", time.Hour),
		token(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "eve", time.Hour),
		token(jwt.SigningMethodHS256, []byte(secret), "eve", -time.Hour),
		"Authorization: Basic alice",
		"X-Nothing: at all",
	} {
		w.sends(401, "GET", "/a", line)
	}
}
