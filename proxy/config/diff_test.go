package config

import "testing"

func TestLine_LeavesOutWhatIsUsual(t *testing.T) {
	c := mustLoad(t, write(t, "own.yaml", "upstreams: {demo: echo}\nroutes: [{name: a, match: {path: /a}, upstream: demo, limits: [{name: l, key: global, rate: 1/1m, expose: false, algorithm: token_bucket}]}]\n"))
	limits, routes := c.parts(nil)[0], c.parts(nil)[1]
	if got, want := limits["a.l"], "{name: l, key: global, rate: 1/1m, mode: enforce, on_store_failure: local, expose: false}"; got != want {
		t.Errorf("limit %s; want %s", got, want)
	}
	if got, want := routes["a"], "{name: a, match: {path: /a}, upstream: demo}"; got != want {
		t.Errorf("route %s; want %s", got, want)
	}
}
