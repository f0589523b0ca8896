package proxy

import (
	"strings"
	"testing"
)

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
		w.sends(200, "GET", "/b", "X-Phone: 3")
		w.sends(429, "GET", "/b", "X-Phone: 3")
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
