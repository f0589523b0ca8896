package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

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
	w.sendsAll([]int{200, 429}, "GET", "/a", "X-Forwarded-For: 2001:db8:1::1")
}

// The counts of a key stay when it gets an override, since both count under one
// name.
func TestExtract_AnOverrideKeepsTheCounts(t *testing.T) {
	w := newProxy(t, limitYAML(`{name: l, key: header:X-User, rate: 2/1h}`))
	w.sends(200, "GET", "/a", "X-User: alice")
	w.reloads(limitYAML(`{name: l, key: header:X-User, rate: 2/1h, overrides: {alice: 3/1h}}`))
	w.sendsAll([]int{200, 200, 429}, "GET", "/a", "X-User: alice")
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
			w.sendsAll(times(passes, 200), "GET", "/a")
			rec := w.sends(429, "GET", "/a")
			if got := rec.Header().Get("RateLimit"); !strings.Contains(got, "r=0;t=") {
				t.Errorf("%s: RateLimit = %s; want nothing left, and until when", terms, got)
			}
		}
	})
}

// Servlets, Rack and Go's FormValue look for a parameter in the query and in the form.
func TestBeside_AFormIsRefused(t *testing.T) {
	f := startServer(t, `
keys:
  q: {from: "query:phone", on_missing: skip}
  both: {from: "query:phone", must_equal: "form:phone"}
  form: {from: "form:user", on_missing: skip}
  user: {from: "query:user", on_missing: skip}
routes:
  - {name: query, match: {path: /query}, upstream: echo, limits: [{key: q, rate: 99/1h}]}
  - {name: cost, match: {path: /cost}, upstream: echo, limits: [{key: global, rate: 99/1h, cost: "query:size", max_cost: 10}]}
  - {name: distinct, match: {path: /distinct}, upstream: echo, limits: [{key: global, distinct: q, rate: 99/1h}]}
  - {name: step, match: {path: /step}, upstream: echo, limits: [{key: global, rate: 99/1h, step_up: {key: q, rate: 9/1h, jwt: {secret: '`+challengeSecret+`'}}}]}
  - {name: subject, match: {path: /subject}, upstream: echo, limits: [{key: global, rate: 99/1h, return_on: {route: query, key: q}}]}
  - {name: told, match: {path: /told}, upstream: echo, form_beside_query: ignore, limits: [{key: q, rate: 99/1h, cost: "query:size", max_cost: 10}]}
  - {name: both, match: {path: /both}, upstream: echo, limits: [{key: both, rate: 99/1h}]}
  - {name: two, match: {path: /two}, upstream: echo, limits: [{key: user, rate: 99/1h}, {name: f, key: form, rate: 99/1h}]}
  - {name: tried, match: {path: /tried}, upstream: echo, limits: [{key: user, rate: 99/1h}, {name: f, key: form, rate: 99/1h, mode: shadow}]}
  - {name: shadow, match: {path: /shadow}, upstream: echo, limits: [{key: q, rate: 99/1h, mode: shadow}]}
  - {name: v1, match: {path: /v, query: {v: "1"}}, upstream: echo, limits: [{key: client_ip, rate: 99/1h}]}
  - {name: v1-told, match: {path: /w, query: {v: "1"}}, upstream: echo, form_beside_query: ignore, limits: [{key: client_ip, rate: 99/1h}]}
  - {name: rest, match: {path: /*}, upstream: echo}
  - {name: none, match: {path: /none}, upstream: echo, limits: [{key: client_ip, rate: 99/1h}]}
`)
	const form, parts = "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
	for _, c := range []struct {
		line, kind, body string
		want             int
	}{
		{"POST /query?phone=1", form, "phone=2", 400},
		{"POST /query", form, "phone=2", 400},
		{"POST /query?phone=1", form, "a=2", 400}, // what is in it is not looked at
		{"GET /query?phone=1", form, "phone=2", 400},
		{"POST /query?phone=1", parts, "--b--\r\n", 400},
		{"PUT /query?phone=1", "Multipart/Related; boundary=b", "--b--\r\n", 400},
		{"POST /query?phone=1", "text/plain, " + form, "phone=2", 400},
		{"POST /query?phone=1", "", "phone=2", 400}, // a form to Rack
		{"PUT /query?phone=1", "", "phone=2", 200},
		{"POST /query?phone=1", form, "", 200},
		{"POST /query?phone=1", "application/json", "{}", 200},
		{"POST /query?phone=1", "text/plain", "phone=2", 200},
		{"POST /cost?size=1", form, "size=9", 400},
		{"POST /cost", form, "size=9", 400},
		{"POST /cost?size=1", "application/json", "{}", 200},
		{"POST /distinct?phone=1", form, "phone=2", 400},
		{"POST /step?phone=1", form, "phone=2", 400},
		{"POST /subject?phone=1", form, "phone=2", 400},
		{"POST /told?phone=1&size=2", form, "phone=2", 200},
		{"POST /both?phone=1", form, "phone=2", 400},
		{"POST /both?phone=1", form, "phone=1", 200},
		{"POST /both?phone=1", form, "a=2", 200},
		{"POST /both?phone=1", "", "", 200},
		{"POST /two?x=1", form, "user=2", 200},
		{"POST /two?user=1", form, "user=2", 400},
		{"POST /two?user=1", form, "a=2", 400},
		{"POST /tried?x=1", form, "user=2", 400},
		{"POST /shadow?phone=1", form, "phone=2", 200},
		{"POST /v?v=2", form, "v=1", 400},
		{"POST /v", form, "v=1", 400},
		{"POST /v", "application/json", "{}", 200},
		{"POST /w?v=1", form, "v=2", 200},
		{"POST /x", form, "v=1", 200},
		{"POST /none?phone=1", form, "phone=2", 200},
	} {
		kind := ""
		if c.kind != "" {
			kind = "Content-Type: " + c.kind + "\r\n"
		}
		t.Log(c.line, c.kind, c.body)
		f.dial(fmt.Sprintf("%s HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n%s", c.line, kind, len(c.body), c.body)).WantStatus(c.want)
		if c.body != "" {
			f.dial(fmt.Sprintf("%s HTTP/1.1\r\nHost: a\r\n%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", c.line, kind, len(c.body), c.body)).WantStatus(c.want)
		}
	}
}

// inlineKey may stand in place of the name of a key.
const inlineKey = `{from: "header:X-Phone", on_missing: skip, normalize: digits, set_header: X-Phone-E164}`

// A key with set_header may stand within whatever reads a key. Its field is Weir's own on all routes, in the
// header and in trailers, whatever the client sends.
func TestReads_NoClientSendsTheFieldOfAKey(t *testing.T) {
	const step = "{rate: 9/1m, jwt: {secret: '" + challengeSecret + "'}, key: KEY}"
	for name, yaml := range map[string]string{
		"key":                "limits: [{key: KEY, rate: 9/1m}]",
		"key of a limit off": "limits: [{key: KEY, rate: 9/1m, mode: off}]",
		"distinct":           "limits: [{key: client_ip, distinct: KEY, rate: 9/1m}]",
		"step_up":            "limits: [{key: client_ip, rate: 9/1m, step_up: " + step + "}]",
		"return_on":          "limits: [{key: client_ip, rate: 9/1m, return_on: {route: verify, key: KEY}}]",
		"budget":             "limits: [{key: client_ip, budget: 9/1m, price: sms}]",
		"list":               "lists: [phones]",
		"limit of several":   "limits: [common]",
	} {
		t.Run(name, func(t *testing.T) {
			file := "upstreams: {demo: echo}\nroutes:\n  - {name: a, match: {path: /a}, upstream: demo, " + yaml + "}\n  - {name: other, match: {path: /other}, upstream: demo}\n"
			switch name {
			case "return_on":
				file += "  - {name: verify, match: {path: /verify, methods: [POST]}, upstream: demo, lists: [phones]}\nlists: {phones: {key: KEY, values: ['+4915112345678'], action: deny}}\n"
			case "list":
				file += "lists: {phones: {key: KEY, values: ['+4915112345678'], action: deny}}\n"
			case "budget":
				file += "prices: {sms: {key: KEY, rows: ['+49,*,0.01']}}\n"
				file = strings.ReplaceAll(file, "KEY", strings.ReplaceAll(inlineKey, "digits", "e164"))
			case "limit of several":
				file += "limits: {common: {key: client_ip, distinct: KEY, rate: 9/1m}}\n"
			}
			w := newProxy(t, strings.ReplaceAll(file, "KEY", inlineKey))
			for _, target := range []string{"/a", "/other"} {
				if got := echoed(t, w.sends(200, "GET", target, "X-Phone-E164: 666")).Headers["X-Phone-E164"]; got != nil {
					t.Errorf("%s: the upstream received %q of the client", target, got)
				}
				w.sends(400, "GET", target, "X_Phone_E164: 666")
			}
			for _, r := range w.current.Load().routes {
				if !r.isReservedTrailer("X-Phone-E164") {
					t.Errorf("a trailer of route %s may have the name of the field", r.Name)
				}
			}
		})
	}
}

// A log without the value of a key leaves out the limit that reads it, whatever for, and rejects nothing. With the
// field keys of Weir's own log the limit is known.
func TestReads_AReplayKnowsWhatALimitReads(t *testing.T) {
	for name, limit := range map[string]string{
		"key":       "{key: phone, rate: 1/1m}",
		"distinct":  "{key: client_ip, distinct: phone, rate: 1/1m}",
		"step_up":   "{key: client_ip, rate: 1/1m, step_up: {key: phone, rate: 1/1m, jwt: {secret: '" + challengeSecret + "'}}}",
		"return_on": "{key: client_ip, rate: 1/1m, return_on: {route: verify, key: phone}}",
		"budget":    "{key: client_ip, budget: 1/1m, price: sms}",
		"cost":      "{key: client_ip, rate: 9/1m, cost: 'header:X-Phone', max_cost: 5}",
	} {
		t.Run(name, func(t *testing.T) {
			yaml := "upstreams: {demo: echo}\nkeys: {phone: {from: 'header:X-Phone', normalize: e164}}\nprices: {sms: {key: phone, rows: ['+49,*,0.01']}}\nroutes:\n" +
				"  - {name: a, match: {path: /a}, upstream: demo, limits: [" + limit + "]}\n" +
				"  - {name: verify, match: {path: /verify, methods: [POST]}, upstream: demo, limits: [{key: phone, rate: 9/1m}]}\n"
			q := LoggedRequest{At: time.Unix(1_800_000_000, 0), Method: "GET", Target: "/a", Client: netip.MustParseAddr("192.0.2.1"), Status: 200}
			if got := replay(t, yaml, q).Routes[0]; got.Limits[0].Unknown != 1 || got.Passed != 1 || len(got.Rejected) > 0 {
				t.Errorf("%d unknown, %d passed, rejected %v; want that the request passes, and the limit is unknown", got.Limits[0].Unknown, got.Passed, got.Rejected)
			}
			if name == "cost" {
				return // which is not logged
			}
			w := newProxy(t, yaml)
			w.sends(200, "GET", "/a", "X-Phone: +4915112345678")
			keys, _ := w.lines("request")[0]["keys"].(string)
			q.Own, q.Keys = true, keys
			if got := replay(t, yaml, q).Routes[0]; got.Limits[0].Unknown != 0 || got.Passed != 1 {
				t.Errorf("by the keys %q: %d unknown, %d passed; want the limit known", keys, got.Limits[0].Unknown, got.Passed)
			}
		})
	}
}
