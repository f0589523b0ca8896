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
	w.sendsAll([]int{200, 429}, "GET", "/method")
	w.sends(200, "PUT", "/method")
}

func TestKeys_TokensAreVerified(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	w := newProxy(t, "jwt: {secret: "+secret+"}\n"+limitYAML("{key: jwt:sub, rate: 1/1h}"))
	token := func(method jwt.SigningMethod, key any, user string, end time.Duration) string {
		return "Authorization: Bearer " + signedToken(t, method, key, jwt.MapClaims{"sub": user, "exp": time.Now().Add(end).Unix()})
	}
	alice := token(jwt.SigningMethodHS256, []byte(secret), "alice", time.Hour)
	w.sendsAll([]int{200, 429}, "GET", "/a", alice)
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

// A secret is replaced while requests come: what was counted under the old one
// holds, is told of once, and what is counted meanwhile holds when the old one is
// gone.
func TestRotate_CountsHold(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		routes := upstreamYAML(t, answerByStatus, `refund_on: {status: [5xx]}, limits: [{name: each, key: header:X-Phone, rates: [2/1h, 9/1d], penalty: {ban: 1h, after: 9}}, {name: fan, key: client_ip, distinct: header:X-Phone, rate: 3/1h}]`) +
			"  - {name: b, match: {path: /b}, respond: {body: ok}, limits: [{name: pause, key: header:X-Phone, cooldown: [1h], reset_on: {route: a}}]}\n"
		w := newProxy(t, routes, use)
		reload := func(privacy string) {
			t.Helper()
			w.reloads("privacy: {" + privacy + "}\n" + routes)
		}
		w.phone(200, "1")
		w.phone(200, "1")
		w.phone(200, "2")
		w.sends(200, "GET", "/b", "X-Phone: 9")
		const first, second = "hash_secret: first-secret-of-us", "hash_secret: second-secret-of-us"
		reload(first + ", previous_secret: none") // there was none
		w.phone(429, "1")
		w.sends(429, "GET", "/b", "X-Phone: 9")
		for range 3 {
			w.phone(503, "2", "status=503") // given back under both
		}
		rec := w.sends(200, "POST", "/a", "X-Phone: 2")
		if got, want := rec.Header().Get("RateLimit"), `"each-1h";r=0;t=3600, "each-1d";r=7;t=86400, "fan";r=1`; !sameButSeconds(got, want) {
			t.Errorf("RateLimit = %s; want about %s", got, want)
		}
		w.phone(429, "2")
		w.phone(200, "3")
		w.phone(429, "4") // a fourth number: two of three are known under the old secret alone
		w.sendsAll([]int{200, 429}, "GET", "/b", "X-Phone: 3")
		w.phone(200, "3") // lets the pause begin anew, under both
		w.sends(200, "GET", "/b", "X-Phone: 3")
		reload(second + ", previous_secret: first-secret-of-us")
		w.phone(429, "3")
		w.sends(429, "GET", "/b", "X-Phone: 3")
		w.phone(200, "4") // the third number under the first secret: the one before that is forgotten
		w.phone(429, "5")
		reload(second)
		w.sends(200, "GET", "/b", "X-Phone: 3") // nothing passed under the second secret
	})
}

// sameButSeconds reports whether two fields differ in their times only.
func sameButSeconds(a, b string) bool {
	plain := func(s string) string {
		var out []string
		for item := range strings.SplitSeq(s, ", ") {
			name, _, _ := strings.Cut(item, ";t=")
			out = append(out, name)
		}
		return strings.Join(out, ", ")
	}
	return plain(a) == plain(b)
}

// A route that only looks at a list returns permits and resets cooldowns of before as well.
func TestRotate_EffectsOfARouteWithoutLimits(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		const routes = `keys: {phone: "header:X-Phone"}
lists: {all: {key: phone, values: ["0"], action: deny}}
routes:
  - {name: send, match: {path: /send}, respond: {body: ok}, limits: [{key: global, rate: 1/1h, return_on: {route: verify, key: phone}}]}
  - {name: pause, match: {path: /pause}, respond: {body: ok}, limits: [{key: phone, cooldown: [1h], reset_on: {route: verify}}]}
  - {name: verify, match: {methods: [POST], path: /verify}, respond: {body: ok}, lists: [all]}
`
		w := newProxy(t, "privacy: {hash_secret: first-secret-of-us}\n"+routes, use)
		w.sends(200, "POST", "/send", "X-Phone: 1")
		w.sends(200, "POST", "/pause", "X-Phone: 1")
		w.reloads("privacy: {hash_secret: second-secret-of-us, previous_secret: first-secret-of-us}\n" + routes)
		w.sends(429, "POST", "/send", "X-Phone: 1")
		w.sends(200, "POST", "/verify", "X-Phone: 1")
		w.sends(200, "POST", "/send", "X-Phone: 1")
		w.sends(200, "POST", "/pause", "X-Phone: 1")
	})
}
