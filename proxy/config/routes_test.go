package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
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
	c := mustParse(t, `
defaults: {mode: shadow, on_store_failure: deny, headers: none, expose: false}
routes:
  - match: {path: /a}
    upstream: echo
    limits:
      - {name: a, key: global, rate: 1/1m}
      - {name: b, key: global, rate: 1/1m, mode: enforce, on_store_failure: allow, expose: true}
`)
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
	c.written, c.own, c.lined, c.values, c.uses = nil, nil, nil, nil, nil
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v, want %+v", c, want)
	}
}

// TestDecide_RefusesKeysThatAPeerDoesNotSend takes all kinds of peers: those of listen.decide.http by dialect, and
// Envoy by a route for descriptors. The files bad-decide-body and bad-descriptor have what is said in full.
func TestDecide_RefusesKeysThatAPeerDoesNotSend(t *testing.T) {
	sends := map[string]string{ // by the kind of key, who sends what it is read from
		"json:/phone": "traefik apisix haproxy", "form:phone": "traefik apisix haproxy", "header:X-Phone": "nginx caddy traefik apisix haproxy",
		"query:phone": "nginx caddy traefik apisix haproxy", "cookie:phone": "nginx caddy traefik apisix haproxy", "client_ip": "nginx caddy traefik apisix haproxy",
		"host": "nginx caddy traefik apisix haproxy", "global": "nginx caddy traefik apisix haproxy envoy", "descriptor:phone": "envoy",
	}
	for origin, who := range sends {
		for _, peer := range []string{"nginx", "caddy", "traefik", "apisix", "haproxy", "envoy"} {
			listener, match := fmt.Sprintf("{http: '127.0.0.1:8082', dialect: %s}", peer), "{path: /a}"
			if peer == "envoy" {
				listener, match = "{grpc: '127.0.0.1:8081'}", "{domain: edge, descriptor: {phone: '*'}}"
			}
			text := fmt.Sprintf("listen: {http: none, decide: %s}\nroutes: [{match: %s, limits: [{key: '%s', rate: 1/1h}]}]\n", listener, match, origin)
			_, err := Parse("weir.yaml", []byte(text), environment)
			if want := strings.Contains(who, peer); (err == nil) != want {
				t.Errorf("%s asked by %s: %v; want it accepted: %v", origin, peer, err, want)
			}
			if err != nil && !strings.Contains(err.Error(), "; ") {
				t.Errorf("%s asked by %s: %v; want what to write instead", origin, peer, err)
			}
		}
	}
}

// specs fills every pointer to a key below v with a key of its own and returns them by the path of their field.
// It fills other pointers with what they point to, except of package key.
func specs(v reflect.Value, path string, all map[string]*key.Spec) {
	switch t := v.Type(); {
	case t == reflect.TypeFor[*key.Spec]():
		all[path] = &key.Spec{Name: path}
		v.Set(reflect.ValueOf(all[path]))
	case t == reflect.TypeFor[key.Origin]():
		all[path] = nil // not a key that Reads can have
	case t == reflect.TypeFor[[]*key.Spec]():
		all[path] = &key.Spec{Name: path}
		v.Set(reflect.ValueOf([]*key.Spec{all[path]}))
	case t.Kind() == reflect.Pointer && !strings.HasSuffix(t.Elem().PkgPath(), "/proxy/key"):
		v.Set(reflect.New(t.Elem()))
		specs(v.Elem(), path, all)
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() {
				specs(v.Field(i), strings.TrimPrefix(path+"."+f.Name, "."), all)
			}
		}
	}
}

// A key that a limit holds is one that it reads, or is named here with the reason.
func TestReads_HasEveryKeyOfALimit(t *testing.T) {
	var l Limit
	held := map[string]*key.Spec{}
	specs(reflect.ValueOf(&l).Elem(), "", held)
	for _, ofOthers := range []string{"Return.Key", "Reset.Key"} { // another route reads it, by a limit or list of its own
		if held[ofOthers] == nil {
			t.Errorf("%s is no key; take it out here", ofOthers)
		}
		delete(held, ofOthers)
	}
	var read []string
	purposes := map[Purpose]bool{}
	l.Mode = Shadow
	for _, r := range l.Reads() {
		read = append(read, r.Key.Name)
		if purposes[r.Purpose] && r.Purpose != ForCost || r.Mode != Shadow || held[r.Key.Name] != r.Key {
			t.Errorf("Reads has %+v; want a purpose of its own, and the mode of the limit", r)
		}
		purposes[r.Purpose] = true
	}
	if want := slices.Sorted(maps.Keys(held)); !slices.Equal(slices.Sorted(slices.Values(read)), want) || len(want) < 7 {
		t.Errorf("Reads has %q; want all of %q", read, want)
	}
	if !purposes[ForKey] || !purposes[ForPlan] || purposes[ForList] || purposes[ForBalance] {
		t.Errorf("the purposes are %v", purposes)
	}
}

// A route reads what its limits read, whatever their mode, its lists and its upstream; and of a limit that lacks
// a key nothing is in its place.
func TestReads_OfARoute(t *testing.T) {
	a, b, c, d := &key.Spec{Name: "a"}, &key.Spec{Name: "b"}, &key.Spec{Name: "c"}, &key.Spec{Name: "d"}
	r := Route{
		Limits: []*Limit{{Key: a, Mode: Off}, {Key: a, Distinct: b, Mode: Enforce}}, Lists: []*List{{Key: c}}, Upstream: &Upstream{HashBy: d},
	}
	want := []Read{{a, ForKey, Off}, {a, ForKey, Enforce}, {b, ForDistinct, Enforce}, {c, ForList, Enforce}, {d, ForBalance, Enforce}}
	if got := r.Reads(); !slices.Equal(got, want) {
		t.Errorf("Reads = %v; want %v", got, want)
	}
	r.Upstream = nil
	if got := r.Reads(); !slices.Equal(got, want[:4]) {
		t.Errorf("without an upstream Reads = %v", got)
	}
}
