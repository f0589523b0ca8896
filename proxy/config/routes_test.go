package config

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// forms holds every form that a value may have.
const forms = "testdata/good-forms.yaml"

func TestLoad_FormsOfKeys(t *testing.T) {
	c := mustLoad(t, forms)
	short := c.Keys["short"]
	for name, want := range map[string]*key.Spec{
		"short":    {Name: "short", From: key.Origin{Source: key.Header, Name: "X-Short"}, OnMissing: key.Reject},
		"one-step": {Name: "one-step", From: key.Origin{Source: key.Query, Name: "q"}, Normalize: []key.Step{key.Lower}, OnMissing: key.Skip},
		"steps":    {Name: "steps", From: key.Origin{Source: key.Query, Name: "q"}, Normalize: []key.Step{key.Trim, key.Lower}, OnMissing: key.Shared},
		"mapping":  {Name: "mapping", From: key.Origin{Source: key.Header, Name: "X-Mapping"}, Normalize: []key.Step{key.Digits}, OnMissing: key.Use, Fallback: short},
		"more": {
			Name: "more", From: key.Origin{Source: key.Path, Name: "id"}, Normalize: []key.Step{key.Trim, key.Digits}, OnMissing: key.Use,
			Fallback: &key.Spec{Name: "client_ip", From: key.Origin{Source: key.ClientIP}, OnMissing: key.Reject},
		},
		"pair": {Name: "pair", OnMissing: key.Reject, Join: []*key.Spec{
			short, {Name: "header:X-Other", From: key.Origin{Source: key.Header, Name: "X-Other"}, OnMissing: key.Reject},
		}},
	} {
		if got := c.Keys[name]; !reflect.DeepEqual(got, want) {
			t.Errorf("key %s: got %+v, want %+v", name, got, want)
		}
	}
	if c.Keys["pair"].Join[0] != short {
		t.Error("a named key is made twice")
	}
}

func TestLoad_FormsOfUpstreams(t *testing.T) {
	c := mustLoad(t, forms)
	full := c.Upstreams["full"]
	var targets []string
	for _, to := range full.Targets {
		targets = append(targets, to.URL.String())
	}
	if want := []string{"http://a", "http://b:81", "http://[::1]:82"}; !slices.Equal(targets, want) || full.Targets[1].Weight != 3 || full.Targets[2].Weight != 1 {
		t.Errorf("got %v %+v", targets, full.Targets)
	}
	if want := (Timeouts{Connect: 1500 * time.Millisecond, Response: 30 * time.Second}); full.Timeouts != want {
		t.Errorf("got %v, want %v", full.Timeouts, want)
	}
	if u := c.Upstreams["url"]; u.Targets[0].URL.String() != "https://one.example:8443" {
		t.Errorf("got %v", u.Targets[0].URL)
	}
}

func TestLoad_FormsOfRoutes(t *testing.T) {
	c := mustLoad(t, forms)
	route := map[string]*Route{}
	for _, r := range c.Routes {
		route[r.Name] = r
	}
	if r := route["a"]; !r.Upstream.Echo || !r.WebSocket || !slices.Equal(r.Match.Methods, []string{"GET"}) || r.Limits != nil {
		t.Errorf("got %+v", r)
	}
	if route["c"].Upstream != route["d"].Upstream || c.Upstreams["http://a"] != route["c"].Upstream {
		t.Error("one URL in two places is two upstreams")
	}
	want := Match{
		Host: "*.example.com", Path: "/c/{id:^(?:[0-9]+|x{2})$}/*", Params: []string{"id", "*"},
		Headers: map[string]string{"X-App": "*", "X-Kind": "a b"},
	}
	if got := route["c"].Match; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	pair := route["c"].Limits[0]
	if want := []limiter.Rate{{Count: 1, Window: time.Minute}, {Count: 5, Window: 90 * time.Minute}}; pair.Name != "pair" || pair.Key != c.Keys["pair"] || !slices.Equal(pair.Rates, want) {
		t.Errorf("got %+v", pair)
	}
	if l := route["c"].Limits[3]; l.Mode != Off || l.Expose || l.OnStoreFailure != Deny {
		t.Errorf("got %+v", l)
	}
	if got, want := route["e"].Reject, (Reject{Status: 503, Detail: "Later: {retry_after}"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := route["d"].Position, (Position{File: "testdata/good-forms.yaml", Line: 33, Column: 5}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestLoad_DefaultsReachLimits: a limit has what defaults say unless it says
// otherwise itself.
func TestLoad_DefaultsReachLimits(t *testing.T) {
	c, err := Parse("weir.yaml", []byte(`
defaults: {mode: shadow, on_store_failure: deny, headers: none, expose: false}
routes:
  - match: {path: /a}
    upstream: echo
    limits:
      - {name: a, key: global, rate: 1/1m}
      - {name: b, key: global, rate: 1/1m, mode: enforce, on_store_failure: allow, expose: true}
`), environment)
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Routes[0].Limits[0], c.Routes[0].Limits[1]
	if a.Mode != Shadow || a.OnStoreFailure != Deny || a.Expose || c.Defaults.Headers != none {
		t.Errorf("got %+v", a)
	}
	if b.Mode != Enforce || b.OnStoreFailure != Allow || !b.Expose {
		t.Errorf("got %+v", b)
	}
}

// TestLoad_FewestLines is the config that README begins with, and all that is
// filled in.
func TestLoad_FewestLines(t *testing.T) {
	c := mustLoad(t, "testdata/good-six-lines.yaml")
	want := &Config{
		Listen:   Listen{HTTP: ":8080", Timeouts: ListenTimeouts{10 * time.Second, 10 * time.Second, 30 * time.Second, 30 * time.Second, 2 * time.Minute}, MaxHeader: 64 << 10, MaxBuffered: 128 << 20, Drain: Drain{Within: 25 * time.Second}},
		Admin:    Admin{HTTP: "127.0.0.1:9901"},
		Store:    StoreMemory,
		Redis:    Redis{Mode: RedisSingle, Addrs: []string{"127.0.0.1:6379"}, Prefix: "weir", Timeout: 50 * time.Millisecond, Breaker: Breaker{After: 5, Rest: 2 * time.Second}},
		Reload:   Reload{Source: SourceFile},
		ClientIP: ClientIP{Header: "X-Forwarded-For", IPv6Prefix: 64},
		Privacy:  Privacy{LogClient: ClientFull},
		Defaults: Defaults{Mode: Enforce, OnStoreFailure: Local, Headers: "ietf", Expose: true},
		Alerts:   Alerts{Refused: Threshold{Count: 100}, Used: []int64{80}, Repeat: time.Hour},

		AccessLog: AccessLog{Format: LogJSON, Fields: []string{"standard"}, Sample: 1},
		Traces:    Traces{Sample: 0.01, Parent: ParentTrusted, Service: "weir"},
	}
	route := c.Routes[0]
	if route.Name != "v1-sms-send" || route.Limits[0].Name != "header-X-Phone" || route.Upstream.Timeouts != (Timeouts{Connect: 2 * time.Second, Response: 30 * time.Second}) {
		t.Errorf("got %+v %+v %+v", route, route.Limits[0], route.Upstream)
	}
	if want := (Reject{Status: 429, Detail: "Too many requests. Try again in {retry_after} s."}); !reflect.DeepEqual(route.Reject, want) {
		t.Errorf("got %+v", route.Reject)
	}
	c.Keys, c.Upstreams, c.Routes, c.Hash, c.Sum, c.Files, c.Globs, c.Warnings, c.Remarks, c.form = nil, nil, nil, "", "", nil, nil, nil, nil, nil
	c.written, c.own, c.values = nil, nil, nil
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v, want %+v", c, want)
	}
}
