package proxy

import "testing"

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
