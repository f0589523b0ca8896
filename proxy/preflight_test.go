package proxy

import (
	"strings"
	"testing"
)

const preflighted = `
client_ip: {trusted_proxies: [127.0.0.2/32]}
routes:
  - {name: header, match: {path: /header}, upstream: echo, limits: [{key: "header:X-Phone", rate: 1/1h}, {name: all, key: global, rate: 1/1h}]}
  - {name: query, match: {path: /query}, upstream: echo, limits: [{key: {from: "query:phone", on_missing: skip}, rate: 1/1h}, {name: all, key: global, rate: 1/1h}]}
  - {name: form, match: {path: /form}, upstream: echo, limits: [{key: {from: "form:phone", on_missing: skip}, rate: 1/1h}, {name: all, key: global, rate: 1/1h}]}
  - {name: path, match: {path: "/path/{phone}"}, upstream: echo, limits: [{key: "path:phone", rate: 1/1h}]}
  - {name: cookie, match: {path: /cookie}, upstream: echo, limits: [{key: {from: "cookie:sid", on_missing: skip}, rate: 1/1h}, {name: all, key: global, rate: 1/1h}]}
  - {name: json, match: {path: /json}, upstream: echo, limits: [{key: {from: "json:/user/phone", on_missing: skip}, rate: 1/1h}, {name: all, key: global, rate: 1/1h}]}
  - {name: agent, match: {path: /agent}, upstream: echo, limits: [{key: {from: "header:User-Agent", on_missing: skip}, rate: 1/1h}, {name: all, key: global, rate: 1/1h}]}
  - {name: cost, match: {path: /cost}, upstream: echo, limits: [{key: global, rate: 1/1h, cost: "query:n", max_cost: 1}]}
  - {name: address, match: {path: /address}, upstream: echo, limits: [{key: client_ip, rate: 1/1h}]}
`

const question = "Origin: https://app.example|Access-Control-Request-Method: POST|"

// What a browser asks before it asks is not counted, and nothing else is taken for
// that: not where a key of the route stands in it, and not with what no browser sends.
func TestPreflight_IsNothingElse(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, preflighted)
		for target, counts := range map[string]bool{
			"/header": false, "/header?phone=1": true, "/query": false, "/query?other=1": false, "/form": false, "/cost": false, "/address": false,
			"/header?X-Phone=1": true, "/header?x_phone=1": true, "/cookie?sid=1": true, "/json?phone=1": true, "/json?user%5Bphone%5D=1": true, "/json?other=1": false, "/header?other=1": false, "/path/1?phone=2": true,
			"/query?phone=1": true, "/query?phone%5B%5D=1": true, "/query?Phone=1": true, "/form?phone=1": true, "/path/1": true, "/cost?n=1": true,
		} {
			last := ""
			for range 3 {
				answer, _ := f.dial(rawLines("OPTIONS " + target + " HTTP/1.1|Host: a|" + question + "User-Agent: x|Accept: */*|Access-Control-Request-Headers: x-phone|Sec-Fetch-Mode: cors||")).ReadResponse("GET")
				last = answer.Status
			}
			if got := !strings.HasPrefix(last, "200"); got != counts { // counted, or refused at once
				t.Errorf("OPTIONS %s three times: %s; want it refused: %v", target, last, counts)
			}
		}
	})
}

func TestPreflight_HasNothingOfItsOwn(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		for name, more := range map[string]string{
			"a cookie":              "Cookie: a=b|",
			"authorization":         "Authorization: Bearer x|",
			"a field of its own":    "X-Own: 1|",
			"a method in a field":   "X-HTTP-Method-Override: POST|",
			"a type":                "Content-Type: application/json|",
			"what proxies say":      "X-Forwarded-For: 192.0.2.1|",
			"an empty chunked body": "Transfer-Encoding: chunked|",
			"two origins":           "Origin: https://b.example|",
		} {
			f := over.opened(t, preflighted)
			for _, want := range []string{"200", "429"} {
				said := "OPTIONS /address HTTP/1.1|Host: a|" + question + more + "|"
				if strings.Contains(more, "chunked") {
					said += "0||"
				}
				if answer, _ := f.dial(rawLines(said)).ReadResponse("GET"); !strings.HasPrefix(answer.Status, want) {
					t.Errorf("with %s: %s; want %s", name, answer.Status, want)
				}
			}
		}
	})
}

// A field that browsers do send counts where it is the key.
func TestPreflight_KeyThatBrowsersSend(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, preflighted)
		f.dial(rawLines("OPTIONS /agent HTTP/1.1|Host: a|" + question + "User-Agent: x||")).WantStatus(200)
		f.dial(rawLines("OPTIONS /agent HTTP/1.1|Host: a|" + question + "User-Agent: x||")).WantStatus(429)
	})
}

// What a trusted proxy adds is no browser's, and does not make a preflight another
// request.
func TestPreflight_BehindATrustedProxy(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, strings.Replace(preflighted, "127.0.0.2", "127.0.0.1", 1))
		for range 3 {
			f.dial(rawLines("OPTIONS /address HTTP/1.1|Host: a|" + question + "X-Forwarded-For: 192.0.2.1|CF-Ray: 1|Via: 1.1 x||")).WantStatus(200)
		}
		f.dial(rawLines("OPTIONS /address HTTP/1.1|Host: a|" + question + "X-Forwarded-For: 192.0.2.1|X-Own: 1||")).WantStatus(200)
		f.dial(rawLines("OPTIONS /address HTTP/1.1|Host: a|" + question + "X-Forwarded-For: 192.0.2.1|X-Own: 1||")).WantStatus(429)
	})
}

// Who passes without being counted ends no cooldown, by however many answers.
func TestReset_NotByWhoIsNotCounted(t *testing.T) {
	w := newProxy(t, `
keys: {phone: {from: "header:X-Phone", normalize: digits}}
lists: {testers: {key: phone, values: ["1"], action: bypass}}
routes:
  - {name: send, match: {path: /send}, upstream: echo, limits: [{name: backoff, key: phone, cooldown: [1h], reset_on: {route: verify, status: [2xx]}}]}
  - {name: verify, match: {path: /verify}, upstream: echo, lists: [testers], idempotency: {}, limits: [{name: guesses, key: phone, rate: 100/1h}]}
`)
	w.sends(200, "POST", "/send", "X-Phone: 1")
	w.sends(200, "POST", "/verify", "X-Phone: 1")
	w.sends(429, "POST", "/send", "X-Phone: 1")
	w.sends(200, "POST", "/send", "X-Phone: 2")
	w.sends(200, "POST", "/verify", "X-Phone: 2", "Idempotency-Key: a")
	w.sends(200, "POST", "/send", "X-Phone: 2")
	w.sends(200, "POST", "/verify", "X-Phone: 2", "Idempotency-Key: a") // a repeat
	w.sends(429, "POST", "/send", "X-Phone: 2")
}

// A page of another origin may read why Weir refuses its request, whatever the reason.
func TestReject_PagesOfOtherOriginsMayReadIt(t *testing.T) {
	const headers = `{Access-Control-Allow-Origin: "{origin}", Access-Control-Allow-Credentials: "true", Access-Control-Expose-Headers: "Retry-After, RateLimit"}`
	w := newProxy(t, `
upstreams: {demo: echo}
lists: {stolen: {key: "header:X-Phone", values: ["666"], action: deny}}
errors: {4xx: {headers: `+headers+`}, 5xx: {headers: `+headers+`}}
routes:
  - {name: a, match: {path: /a}, upstream: demo, lists: [stolen], limits: [{key: "header:X-Phone", rate: 1/1h}], reject: {headers: `+headers+`}}
  - name: step
    match: {path: /step}
    upstream: demo
    limits: [{key: client_ip, rate: 1/1h, step_up: {rate: 1/1h, jwt: {secret: "`+challengeSecret+`"}}}]
    reject: {headers: `+headers+`}
  - {name: gone, match: {path: /gone}, upstream: "http://127.0.0.1:1"}
`)
	w.sends(200, "GET", "/a", "X-Phone: 1")
	w.sends(200, "GET", "/step")
	for _, c := range []struct {
		status int
		lines  []string
	}{
		{429, []string{"/a", "X-Phone: 1"}}, {403, []string{"/a", "X-Phone: 666"}}, {400, []string{"/a"}}, {404, []string{"/none"}}, {403, []string{"/step"}}, {502, []string{"/gone"}},
	} {
		for sent, want := range map[string]string{"https://app.example": "https://app.example", "null": "", "https://a.example/x": ""} {
			h := w.sends(c.status, "GET", c.lines[0], append(c.lines[1:], "Origin: "+sent)...).Header()
			if got := h.Get("Access-Control-Allow-Origin"); got != want || h.Get("Vary") != "Origin" || h.Get("Access-Control-Expose-Headers") == "" {
				t.Errorf("%d of %s for %s: %v", c.status, c.lines[0], sent, h)
			}
		}
	}
	if h := w.sends(429, "GET", "/a", "X-Phone: 1", "Origin: https://a.example", "Origin: https://b.example").Header(); h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("of two origins one is allowed: %v", h)
	}
}
