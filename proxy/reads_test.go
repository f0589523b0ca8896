package proxy

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

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
