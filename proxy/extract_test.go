package proxy

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/limit"
)

func TestExtract_OverridesByValue(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, `
privacy: {hash_secret: a-secret-that-is-long-enough}
keys: {phone: {from: "header:X-Phone", normalize: digits}}
upstreams: {demo: echo}
routes:
  - name: a
    match: {path: /a}
    upstream: demo
    limits:
      - {name: before, key: global, rate: 100/1m}
      - {name: phone, key: phone, rates: [1/1m, 9/1h], overrides: {"+1 2": 3/1m, "3": [2/1m, 4/1h]}}
      - {name: ip, key: client_ip, rate: 50/1m, overrides: {192.0.2.1: 40/1m}}
`, use)
		for _, c := range []struct {
			phone string
			rate  int
			quota string
		}{
			{"9", 1, `"before";q=100;w=60, "phone-1m";q=1;w=60, "phone-1h";q=9;w=3600, "ip";q=40;w=60`},
			{"+1 (2)", 3, `"before";q=100;w=60, "phone";q=3;w=60, "ip";q=40;w=60`},
			{"3", 2, `"before";q=100;w=60, "phone-1m";q=2;w=60, "phone-1h";q=4;w=3600, "ip";q=40;w=60`},
		} {
			for range c.rate {
				rec := w.sends(200, "GET", "/a", "X-Phone: "+c.phone)
				w.hasField(rec, "RateLimit-Policy", c.quota)
			}
			rec := w.sends(429, "GET", "/a", "X-Phone: "+c.phone)
			w.hasField(rec, "RateLimit-Policy", c.quota)
		}
	})
}

// What an override names is a text, and the number that JSON writes so: both count
// under one key. So they do in a list.
func TestExtract_OverridesAndListsHoldForNumbers(t *testing.T) {
	w := newProxy(t, `
keys: {id: json:/id}
lists: {stolen: {key: id, values: ["13"], action: deny}, own: {key: id, values: ["7"], action: bypass}}
routes:
  - name: a
    match: {path: /a}
    upstream: echo
    lists: [stolen, own]
    limits: [{key: id, rate: 1/1h, overrides: {"42": 3/1h, "4.5": 2/1h, "true": 9/1h, "null": 2/1h}}]
`)
	for _, c := range []struct {
		body string
		rate int
	}{
		{`{"id": 41}`, 1}, {`{"id": 42}`, 3}, {`{"id": "4.5"}`, 2}, {`{"id": "true"}`, 9}, {`{"id": "null"}`, 2}, {`{"id": null}`, 1},
	} {
		for range c.rate {
			w.sends(200, "POST", "/a", typeJSON, c.body)
		}
		w.sends(429, "POST", "/a", typeJSON, c.body)
	}
	for _, id := range []string{`"41"`, `41`, `"42"`, `42`} {
		w.sends(429, "POST", "/a", typeJSON, `{"id": `+id+`}`)
	}
	for _, id := range []string{`42.0`, `4200e-2`, `4.5`, `true`, `1.3e1`, `7.0`} {
		w.sends(400, "POST", "/a", typeJSON, `{"id": `+id+`}`)
	}
	w.sends(200, "POST", "/a", typeJSON, `{"id": "42.0"}`)
	for _, id := range []string{`13`, `"13"`} {
		w.sends(403, "POST", "/a", typeJSON, `{"id": `+id+`}`)
	}
	for _, id := range []string{`7`, `"7"`, `7`, `"7"`} {
		w.sends(200, "POST", "/a", typeJSON, `{"id": `+id+`}`)
	}
}

// An IPv6 client is one network, however the override and the client spell an
// address in it.
func TestExtract_OverridesOfNetworks(t *testing.T) {
	w := newProxy(t, "client_ip: {trusted_proxies: [192.0.2.1]}\n"+limitYAML(`{key: client_ip, rate: 1/1h, overrides: {"2001:db8::1": 2/1h}}`))
	w.sends(200, "GET", "/a", "X-Forwarded-For: 2001:DB8::9")
	w.sends(200, "GET", "/a", "X-Forwarded-For: 2001:db8:0:0::8")
	w.sends(429, "GET", "/a", "X-Forwarded-For: 2001:db8::1")
	w.sends(200, "GET", "/a", "X-Forwarded-For: 2001:db8:1::1")
	w.sends(429, "GET", "/a", "X-Forwarded-For: 2001:db8:1::1")
}

// The counts of a key stay when it gets an override, since both count under one
// name.
func TestExtract_AnOverrideKeepsTheCounts(t *testing.T) {
	w := newProxy(t, limitYAML(`{name: l, key: header:X-User, rate: 2/1h}`))
	w.sends(200, "GET", "/a", "X-User: alice")
	w.reloads(limitYAML(`{name: l, key: header:X-User, rate: 2/1h, overrides: {alice: 3/1h}}`))
	w.sends(200, "GET", "/a", "X-User: alice")
	w.sends(200, "GET", "/a", "X-User: alice")
	w.sends(429, "GET", "/a", "X-User: alice")
}

func TestExtract_Cost(t *testing.T) {
	w := newProxy(t, limitYAML(`{name: q, key: global, rate: 20/1h, cost: "query:size", max_cost: 10}, {name: h, key: global, rate: 100/1h, cost: "header:X-Cost", max_cost: 100}`))
	for _, bad := range []string{"0", "-1", "+1", "1.5", "11", "x", "", "1e1", "99999999999999999999", "1&size=1", "%31%30%30", "%D9%A1"} {
		if rec := w.sends(400, "GET", "/a?size="+bad); !strings.Contains(rec.Body.String(), "query:size") {
			t.Errorf("size=%s: %s; want a problem about query:size", bad, rec.Body)
		}
	}
	w.sends(400, "GET", "/a", "X-Cost: 1", "X-Cost: 1")
	w.sends(400, "GET", "/a?x=;")
	rec := w.sends(200, "GET", "/a?size=10", "X-Cost: 99")
	w.hasField(rec, "RateLimit", `"q";r=10, "h";r=1;t=3600`)
	w.sends(429, "GET", "/a?size=10", "X-Cost: 2")
	w.sends(200, "GET", "/a?size=9")
	w.sends(429, "GET", "/a")
}

// What a rate never holds is no matter of waiting: 400, and no store is asked.
func TestExtract_CostThatNoRateHolds(t *testing.T) {
	w := newProxy(t, limitYAML(`{name: l, key: header:X-User, rates: [9/1h, 5/1m], cost: "query:n", max_cost: 9, overrides: {alice: 9/1m}}`))
	w.store.fail(limiter.ErrUnavailable)
	w.sends(400, "GET", "/a?n=6", "X-User: bob")
	w.store.err.Store(nil)
	w.sends(200, "GET", "/a?n=5", "X-User: bob")
	w.sends(200, "GET", "/a?n=6", "X-User: alice")
}

// Not even a request that makes no sense to it is refused by a limit in shadow
// mode.
func TestExtract_ShadowRefusesNobody(t *testing.T) {
	w := newProxy(t, limitYAML(`{name: k, key: header:X-User, rate: 1/1h, mode: shadow}, {name: c, key: global, rate: 9/1h, mode: shadow, cost: "query:n", max_cost: 2}`))
	w.sends(200, "GET", "/a?n=x")
	w.sends(200, "GET", "/a", "X-User: a", "X-User: b")
	w.sends(200, "GET", "/a?n=2", "X-User: a")
	for name, want := range map[string]float64{"k": 2, "c": 1} {
		w.counted(want, w.metrics.Decisions.WithLabelValues("a", name, limit.ShadowRefused))
	}
}

func TestRoute_ModeGoesBeforeThatOfItsLimits(t *testing.T) {
	for _, c := range []struct {
		defaults, route, limit string
		want                   int
	}{
		{"enforce", "enforce", "enforce", 429},
		{"shadow", "enforce", "", 429},
		{"enforce", "enforce", "shadow", 200},
		{"enforce", "shadow", "", 200},
		{"enforce", "shadow", "enforce", 200},
		{"enforce", "off", "enforce", 200},
		{"off", "", "enforce", 429},
		{"off", "", "", 200},
	} {
		var route, limit string
		if c.route != "" {
			route = ", mode: " + c.route
		}
		if c.limit != "" {
			limit = ", mode: " + c.limit
		}
		w := newProxy(t, "defaults: {mode: "+c.defaults+"}\nroutes:\n  - {name: a, match: {path: /a}, upstream: echo"+route+", limits: [{name: l, key: global, rate: 1/1h"+limit+"}]}\n")
		w.sends(200, "GET", "/a")
		if got := w.send("GET", "/a").Code; got != c.want {
			t.Errorf("%+v: second request = %d", c, got)
		}
		shadow := testutil.ToFloat64(w.metrics.Decisions.WithLabelValues("a", "l", "shadow_refused"))
		if want := c.want == 200 && c.route != "off" && c.defaults != "off"; (shadow == 1) != want {
			t.Errorf("%+v: %v refused in shadow", c, shadow)
		}
	}
}

func TestRoute_Algorithms(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		for terms, passes := range map[string]int{
			"algorithm: token_bucket":   3,
			"algorithm: sliding_log":    3,
			"algorithm: fixed_window":   3,
			"algorithm: sliding_window": 3,
			"algorithm: gcra":           3,
			"algorithm: gcra, burst: 5": 5,
			"algorithm: gcra, burst: 1": 1,
		} {
			name := strings.NewReplacer(": ", "-", ", ", ".").Replace(terms)
			w := newProxy(t, limitYAML("{name: "+name+", key: global, rate: 3/1h, "+terms+"}"), use)
			for range passes {
				w.sends(200, "GET", "/a")
			}
			rec := w.sends(429, "GET", "/a")
			if got := rec.Header().Get("RateLimit"); !strings.Contains(got, "r=0;t=") {
				t.Errorf("%s: RateLimit = %s; want nothing left, and until when", terms, got)
			}
		}
	})
}
