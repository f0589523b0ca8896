package proxy

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/view"
)

// returningYAML are two routes: one with those limits, and one that confirms what passed there.
func returningYAML(limits string) string {
	return `
keys: {phone: {from: "header:X-Phone", normalize: digits}, country: "header:X-Country"}
routes:
  - {name: send, match: {path: /send}, upstream: 'URL', refund_on: {status: [5xx]}, limits: [` + limits + `]}
  - {name: verify, match: {path: /verify}, upstream: 'URL', limits: [{name: guesses, key: phone, rate: 100/1h}]}
`
}

// returning counts requests until the other route has confirmed them.
const returning = `{name: unused, key: country, rates: [4/1h, 9/1d], return_on: {route: verify, status: [2xx], key: phone}, overrides: {DE: 6/1h}},
  {name: quiet, key: country, rate: 1/1h, return_on: {route: verify, key: phone}, mode: shadow}`

func newReturning(t *testing.T, use func(*Options)) *testProxy {
	return newFor(t, returningYAML(returning), use)
}

// codes asks for a code for each phone, one after the other.
func (p *testProxy) codes(want int, country string, phones ...string) {
	p.Helper()
	for _, phone := range phones {
		p.sends(want, "POST", "/send", "X-Country: "+country, "X-Phone: "+phone)
	}
}

// verify confirms the codes of a phone.
func (p *testProxy) verify(phone string) {
	p.Helper()
	p.sends(200, "POST", "/verify", "X-Phone: "+phone)
}

// newFor makes a proxy whose upstream is URL in its file.
func newFor(t *testing.T, yaml string, use func(*Options)) *testProxy {
	return newProxy(t, strings.ReplaceAll(yaml, "URL", startUpstream(t, answerByStatus)), use)
}

func TestReturn_ByAnotherKey(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newReturning(t, use)
		w.verify("1") // a verify without a send changes nothing
		w.codes(200, "CN", "1")
		w.codes(200, "CN", "1")
		w.sends(503, "POST", "/send?status=503", "X-Country: CN", "X-Phone: 2") // refunded, and not returned again
		w.codes(200, "CN", "2")
		w.codes(200, "CN", "3")
		w.codes(429, "CN", "4") // and notes nothing
		w.sends(403, "POST", "/verify?status=403", "X-Phone: 1")
		w.verify("4")
		w.verify("5")
		w.codes(429, "CN", "1")
		for _, method := range []string{"OPTIONS", "HEAD", "TRACE"} { // many servers answer these by themselves
			w.sends(200, method, "/verify", "X-Phone: 1")
		}
		w.codes(429, "CN", "1")
		w.verify("+ 1") // both sends of 1, before its response is sent
		w.codes(200, "CN", "6")
		w.codes(200, "CN", "6")
		w.codes(429, "CN", "6")
		w.verify("1")
		w.codes(429, "CN", "6")
		w.verify("2")
		w.codes(200, "CN", "7")
		w.codes(429, "CN", "7")
		w.codes(200, "DE", "8", "8", "8", "8", "8", "8") // a country with a rate of its own
		w.codes(429, "DE", "9")
		w.verify("8")
		w.codes(200, "DE", "9", "9", "9", "9", "9", "9")
		w.counted(9, w.metrics.Returns.WithLabelValues("send", "unused"))
		if got := testutil.ToFloat64(w.metrics.Returns.WithLabelValues("send", "quiet")); got == 0 {
			t.Error("a limit in shadow mode returned nothing")
		}
	})
}

// However many responses arrive at a time, the permits are returned once.
func TestReturn_Once(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newReturning(t, use)
		w.codes(200, "CN", "1", "1", "1")
		w.codes(200, "CN", "2")
		atOnce(8, func(int) bool { w.verify("1"); return true })
		w.codes(200, "CN", "3", "3", "3")
		w.codes(429, "CN", "3")
	})
}

// An outcome that an application reports does what a response does.
func TestReturn_ByOutcome(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newReturning(t, use)
		w.codes(200, "CN", "1", "1", "1", "1")
		w.codes(429, "CN", "1")
		for _, want := range []int{4, 0} {
			r, err := w.ApplyOutcome(t.Context(), Outcome{"phone", "+1", Verified})
			if err != nil || len(r.Returned) != 2 || r.Returned[0] != (ReturnedLimit{"send", "unused", want}) {
				t.Fatalf("%+v, %v; want %d", r, err, want)
			}
		}
		w.codes(200, "CN", "1")
		for o, want := range map[Outcome]string{
			{"country", "CN", Verified}: `no return_on has the key "country"; keys of a return_on: phone`,
			{"phone", "", Verified}:     "it is empty",
			{"phone", "+1", "used"}:     `there is no outcome "used"; write verified`,
			{"", "+1", Verified}:        "no return_on has the key",
		} {
			if _, err := w.ApplyOutcome(t.Context(), o); !errors.Is(err, view.ErrKeyQuery) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v; want %s", o, err, want)
			}
		}
	})
}

// While the store is unreachable a response returns what this node granted in its place, and no more than
// that: what the store granted stays taken, and what is returned stays reported.
func TestReturn_InFallback(t *testing.T) {
	w, h := newReportedProxy(t, 2, strings.ReplaceAll(returningYAML(returning), "URL", startUpstream(t, answerByStatus)))
	w.codes(200, "CN", "1") // granted by the store
	h.broken.Store(true)
	w.codes(200, "CN", "2") // its share of 4/1h is 2
	w.codes(429, "CN", "3")
	w.verify("2")
	w.codes(200, "CN", "3")
	w.codes(429, "CN", "4")
	if len(h.heard) < 2 {
		t.Errorf("the store hears of %d grants; want that of 2 too", len(h.heard))
	}
	h.broken.Store(false)
	w.verify("1") // noted in the store
	w.counted(2, w.metrics.Returns.WithLabelValues("send", "unused"))
}

// While a secret is replaced, what was noted under the old one is returned too.
func TestReturn_WhileTheSecretIsReplaced(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		routes := strings.ReplaceAll(returningYAML(returning), "URL", startUpstream(t, answerByStatus))
		w := newProxy(t, routes, use)
		reload := func(privacy string) {
			t.Helper()
			w.reloads("privacy: {" + privacy + "}\n" + routes)
		}
		w.codes(200, "CN", "1", "1", "1")
		reload("hash_secret: first-secret-of-us, previous_secret: none")
		w.codes(200, "CN", "2") // the fourth
		w.codes(429, "CN", "2")
		w.verify("2") // under both
		w.codes(200, "CN", "3")
		w.codes(429, "CN", "3")
		w.verify("1") // under the old one
		w.codes(200, "CN", "4", "4", "4")
		w.codes(429, "CN", "4")
		if r, err := w.ApplyOutcome(t.Context(), Outcome{"phone", "4", Verified}); err != nil || r.Returned[0].Requests != 3 {
			t.Errorf("%+v, %v", r, err)
		}
		reload("hash_secret: first-secret-of-us")
		w.codes(200, "CN", "5", "5", "5")
		w.codes(429, "CN", "5")
	})
}

// With a conversion each confirmed subject lets more requests be open.
func TestReturn_Conversion(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newFor(t, returningYAML(`{name: unused, key: country, rates: [2/1h, 9/1d], return_on: {route: verify, key: phone}, conversion: 35%, mode: enforce},
  {name: quiet, key: country, rate: 1/1h, return_on: {route: verify, key: phone}, conversion: 50%}`), use)
		w.codes(200, "CN", "1")
		w.codes(200, "CN", "1")
		w.codes(429, "CN", "2")
		w.verify("2") // a refused request confirms nothing
		w.codes(429, "CN", "2")
		w.verify("1") // 2 + 1.86 may be open, and none is
		w.sends(503, "POST", "/send?status=503", "X-Country: CN", "X-Phone: 3")
		w.verify("3") // what was refunded confirms nothing
		w.codes(200, "CN", "4", "5", "6")
		w.codes(429, "CN", "7")
		w.verify("4") // two confirmed: 2 + 3 may be open
		w.codes(200, "CN", "4", "4", "4")
		w.codes(429, "CN", "7")
		w.verify("4") // no third subject: 2 of 5 are open
		w.codes(200, "CN", "8", "8", "8")
		w.codes(429, "CN", "8")
	})
}

// Without a mode such a limit is in shadow mode: it decides as if it refused, and counts the refusals that would
// have hit users.
func TestReturn_ConversionInShadow(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newFor(t, returningYAML(`{name: unused, key: country, rates: [1/1h, 9/1d], return_on: {route: verify, key: phone}, conversion: 50%}`), use)
		wants := func(refused, wrong float64) {
			t.Helper()
			w.counted(refused, w.metrics.Decisions.WithLabelValues("send", "unused", limit.ShadowRefused))
			w.counted(wrong, w.metrics.ShadowWrong.WithLabelValues("send", "unused"))
		}
		w.codes(200, "CN", "1", "2", "2", "3")
		w.sends(503, "POST", "/send?status=503", "X-Country: CN", "X-Phone: 4") // refunded: there is no code
		wants(4, 0)
		w.verify("4")
		w.sends(403, "POST", "/verify?status=403", "X-Phone: 2")
		wants(4, 0)
		w.verify("2") // both its sends would have been refused, so that it confirms nothing
		w.verify("2")
		w.codes(200, "CN", "5")
		wants(5, 2)
		w.verify("1") // one confirmed: two may be open
		w.codes(200, "CN", "6", "6")
		wants(5, 2)
		w.codes(200, "CN", "7")
		wants(6, 2)
	})
}
