package proxy

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/test/rounds"
)

// novel is a route that lets an address bring three new phones a minute.
func novel(more string) string {
	return `
client_ip: {trusted_proxies: [192.0.2.0/24]}
lists: {staff: {key: client_ip, values: [198.51.100.0/24], action: bypass}}
routes:
  - name: a
    match: {path: /a}
    upstream: echo
    lists: [staff]
    new_keys: 3/1m
    ` + more + `
    limits: [{name: phone, key: {from: "header:X-Phone", normalize: digits}, rate: 100/1h}, {name: ip, key: client_ip, rate: 1000/1h}]
`
}

func from(address string) string { return "X-Forwarded-For: " + address }

func phone(n int) string { return fmt.Sprintf("X-Phone: +86 138 0013 %04d", n) }

// newKeyCount is how many requests with new keys had that result.
func (p *testProxy) newKeyCount(result string) float64 {
	return testutil.ToFloat64(p.metrics.newKeys.WithLabelValues("a", result))
}

func TestNewKeys_RefusesWhoInventsKeys(t *testing.T) {
	w := newProxy(t, novel(""))
	mallory, bob := from("203.0.113.1"), from("203.0.113.2")
	for i := range 3 {
		w.sends(200, "GET", "/a", mallory, phone(i))
	}
	rec := w.sends(429, "GET", "/a", mallory, phone(3))
	after, err := strconv.Atoi(rec.Header().Get("Retry-After"))
	if err != nil || after < 50 || after > 67 {
		t.Errorf("Retry-After = %q; want what is left of the minute", rec.Header().Get("Retry-After"))
	}
	if got := rec.Header().Get("Content-Type"); got != "application/problem+json" || !strings.Contains(rec.Body.String(), `"status":429`) {
		t.Errorf("%s: %s", got, rec.Body)
	}
	if got := rec.Header().Get("RateLimit"); got != "" || strings.Contains(rec.Body.String(), "violated") {
		t.Errorf("RateLimit = %q, %s; want no limit named: none refused", got, rec.Body)
	}
	w.sends(200, "GET", "/a", mallory, phone(0)) // is known
	w.sends(200, "GET", "/a", mallory, "X-Phone: 8613800130001")
	w.sends(200, "GET", "/a", bob, phone(3)) // brings it in
	w.sends(200, "GET", "/a", mallory, phone(3))
	w.sends(429, "GET", "/a", mallory, phone(4))
	if a, r := w.newKeyCount(limit.Allowed), w.newKeyCount(limit.Refused); a != 4 || r != 2 {
		t.Errorf("weir_new_keys_total: %v allowed, %v refused; want 4 and 2", a, r)
	}
	lines := w.lines("request")
	if lines[3]["new_keys"] != limit.Refused || lines[4]["new_keys"] != nil || lines[3]["error"] != errNewKeys.Error() {
		t.Errorf("the log says %v, then %v", lines[3], lines[4])
	}
	for _, line := range lines {
		if strings.Contains(fmt.Sprint(line), "8001300") {
			t.Errorf("the log has a number: %v", line)
		}
	}
}

// What is refused so has not been counted by any limit.
func TestNewKeys_IsAskedBeforeTheLimits(t *testing.T) {
	w := newProxy(t, strings.Replace(novel(""), "1000/1h", "4/1h", 1))
	mallory := from("203.0.113.1")
	for i := range 9 {
		w.sends(map[bool]int{true: 200, false: 429}[i < 3], "GET", "/a", mallory, phone(i))
	}
	w.sends(200, "GET", "/a", mallory, phone(0)) // the fourth of its address
	w.sends(429, "GET", "/a", mallory, phone(0))
}

func TestNewKeys_ANetworkOfIPv6IsOneClient(t *testing.T) {
	w := newProxy(t, novel(""))
	for i := range 3 {
		w.sends(200, "GET", "/a", from(fmt.Sprintf("2001:db8::%d", i+1)), phone(i))
	}
	w.sends(429, "GET", "/a", from("2001:db8::ffff"), phone(3))
	w.sends(200, "GET", "/a", from("2001:db8:0:1::1"), phone(3))
}

func TestNewKeys_ListsLetPass(t *testing.T) {
	w := newProxy(t, novel(""))
	for i := range 9 {
		w.sends(200, "GET", "/a", from("198.51.100.7"), phone(i))
	}
	if got := w.newKeyCount(limit.Allowed); got != 0 {
		t.Errorf("%v keys of a client that is let pass were looked at", got)
	}
}

func TestNewKeys_ShadowOnlyReports(t *testing.T) {
	w := newProxy(t, novel("mode: shadow"))
	for i := range 5 {
		w.sends(200, "GET", "/a", from("203.0.113.1"), phone(i))
	}
	if got := w.newKeyCount(limit.ShadowRefused); got != 2 {
		t.Errorf("%v shadow refusals; want 2", got)
	}
	if line := w.lines("request")[4]; line["new_keys"] != limit.ShadowRefused || line["status"] != 200.0 {
		t.Errorf("the log says %v", line)
	}
	w = newProxy(t, novel("mode: off"))
	for i := range 5 {
		w.sends(200, "GET", "/a", from("203.0.113.1"), phone(i))
	}
	if got := w.newKeyCount(limit.ShadowRefused) + w.newKeyCount(limit.Allowed); got != 0 {
		t.Errorf("%v looked at in mode off", got)
	}
}

// A limit on trial refuses nobody, be it through what it counts by.
func TestNewKeys_ALimitOnTrialBringsNoKeys(t *testing.T) {
	w := newProxy(t, strings.Replace(novel(""), "rate: 100/1h", "rate: 100/1h, mode: shadow", 1))
	for i := range 9 {
		w.sends(200, "GET", "/a", from("203.0.113.1"), phone(i))
	}
}

// What no client can choose is not invented.
func TestNewKeys_AddressesAreNotInvented(t *testing.T) {
	w := newProxy(t, `
client_ip: {trusted_proxies: [192.0.2.0/24]}
jwt: {secret: "0123456789abcdef0123456789abcdef"}
defaults: {new_keys: 1/1h}
routes:
  - {name: signed, match: {path: /signed}, upstream: echo, limits: [{key: "jwt:u", rate: 9/1h}]}
  - {name: a, match: {path: /a}, upstream: echo, limits: [{name: ip, key: client_ip, rate: 9/1h}, {name: all, key: global, rate: 100/1h}]}
  - {name: fan, match: {path: /fan}, upstream: echo, limits: [{key: client_ip, distinct: "header:X-Phone", rate: 9/1h}]}
`)
	for i := range 20 {
		w.sends(200, "GET", "/a", from(fmt.Sprintf("203.0.113.%d", i)))
		w.sends(200, "GET", "/signed", bearer(t, "0123456789abcdef0123456789abcdef", jwt.MapClaims{"u": fmt.Sprint(i)}))
	}
	w.sends(200, "GET", "/fan", phone(1)) // by the defaults, of what is counted
	w.sends(429, "GET", "/fan", phone(2))
}

// Each route lets its own number pass; what is known on one is known on all.
func TestNewKeys_RoutesCountByThemselves(t *testing.T) {
	w := newProxy(t, `
defaults: {new_keys: 2/1m}
keys: {user: "header:X-User"}
routes:
  - {name: a, match: {path: /a}, upstream: echo, limits: [{key: user, rate: 100/1h}]}
  - {name: b, match: {path: /b}, upstream: echo, limits: [{key: user, rate: 100/1h}]}
  - {name: c, match: {path: /c}, upstream: echo, new_keys: none, limits: [{key: user, rate: 100/1h}]}
`)
	for _, path := range []string{"/a", "/b"} {
		w.sends(200, "GET", path, "X-User: 1"+path)
		w.sends(200, "GET", path, "X-User: 2"+path)
		w.sends(429, "GET", path, "X-User: 3"+path)
	}
	w.sends(200, "GET", "/a", "X-User: 1/b")
	for i := range 9 {
		w.sends(200, "GET", "/c", "X-User: "+strconv.Itoa(i))
	}
}

// A descriptor has no address of a client, by which defaults could tell who sends new keys.
func TestNewKeys_DescriptorsHaveNoClient(t *testing.T) {
	p := newProxy(t, "defaults: {new_keys: 2/1m}\n"+describedYAML)
	for i := range 9 {
		p.describes(200, fmt.Sprint("phone=", i))
	}
}

// A reload changes how many may be new, and forgets neither who is known nor what
// was brought; nor does a new secret for keys.
func TestNewKeys_WhatIsKnownOutlivesAReload(t *testing.T) {
	w := newProxy(t, novel(""))
	mallory := from("203.0.113.1")
	for i := range 3 {
		w.sends(200, "GET", "/a", mallory, phone(i))
	}
	w.reloads(strings.Replace(novel(""), "3/1m", "4/1m", 1) + `privacy: {hash_secret: "0123456789abcdef"}`)
	for i := range 3 {
		w.sends(200, "GET", "/a", mallory, phone(i))
	}
	w.sends(200, "GET", "/a", mallory, phone(3))
	w.sends(429, "GET", "/a", mallory, phone(4))
	w.reloads(strings.Replace(novel(""), "3/1m", "none", 1))
	w.sends(200, "GET", "/a", mallory, phone(4))
}

// The answer is in the route's own words.
func TestNewKeys_RefusesInTheOperatorsWords(t *testing.T) {
	w := newProxy(t, novel(`reject: {status: 503, body: "later ({retry_after}, {limit})", headers: {X-Why: busy}}`))
	for i := range 3 {
		w.sends(200, "GET", "/a", phone(i))
	}
	rec := w.sends(http.StatusServiceUnavailable, "GET", "/a", phone(3))
	if got := rec.Body.String(); !strings.HasPrefix(got, "later (") || !strings.HasSuffix(got, ", )") || rec.Header().Get("X-Why") != "busy" {
		t.Errorf("%q, %v", got, rec.Header())
	}
}

// What is looked up on an allowed request costs no allocation.
func TestNewKeys_KnownKeysCostNoAllocation(t *testing.T) {
	w := newProxy(t, novel(""))
	w.sends(200, "GET", "/a", phone(1))
	g := w.current.Load()
	x := newExchange().(*exchange)
	x.client.network = netip.MustParsePrefix("203.0.113.1/32")
	x.request.Method, x.request.HostField, x.request.RequestTarget, x.in.header = "GET", "a", "/a", http.Header{"X-Phone": {"8613800130001"}}
	for _, stage := range []func(*exchange) error{normalize, g.match, g.extract} {
		if err := stage(x); err != nil {
			t.Fatal(err)
		}
	}
	if n := rounds.Allocations(100, func() {
		if err := w.newKeys(x); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations; want none", n)
	}
}

// An address that invents keys uses up its share of the room for new ones, and not
// that of others.
func TestServe_OneAddressLeavesRoomForOthersKeys(t *testing.T) {
	w := newProxy(t, "client_ip: {trusted_proxies: [192.0.2.0/24]}\n"+limitYAML("{name: phone, key: header:X-Phone, rate: 1/1h}"), func(o *Options) {
		o.Store = limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 1000})
	})
	for i := range 5000 {
		w.send("GET", "/a", fmt.Sprintf("X-Phone: m%d", i), from("203.0.113.66"))
	}
	for i := range 50 {
		w.sendsAll([]int{200, 429}, "GET", "/a", fmt.Sprintf("X-Phone: %d", i), from("203.0.113.7"))
	}
}
