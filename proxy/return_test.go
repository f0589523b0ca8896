package proxy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nyaruka/phonenumbers/v2"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/sends"
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

// sendsYAML are routes that send and verify codes, with limits on countries, ranges and addresses.
const sendsYAML = `
keys:
  phone: {from: "header:X-Phone", normalize: e164}
  country: {of: phone, part: country}
  range: {of: phone, part: prefix, drop_last: 4}
routes:
  - name: send
    match: {path: /send}
    upstream: 'URL'
    refund_on: {status: [503]}
    limits:
      - {name: unused, key: country, rates: [50/1h, 90/1d], return_on: {route: verify, key: phone}, conversion: 50%, mode: enforce}
      - {name: unused-range, key: range, rates: [40/1d, 80/2d], return_on: {route: verify, key: phone}, conversion: 50%, mode: enforce}
      - {name: unused-ip, key: ip, rate: 900/1d, return_on: {route: verify, key: phone}}
  - {name: verify, match: {path: /verify}, upstream: 'URL', limits: [{name: guesses, key: phone, rate: 100/1h}]}
`

// newSending returns a proxy whose store has a clock of the test.
func newSending(t *testing.T, now *time.Time) *testProxy {
	return newFor(t, sendsYAML, func(o *Options) {
		o.Store = limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return *now }})
	})
}

// phonesOf returns valid phone numbers of n countries, whose regions they are.
func phonesOf(t *testing.T, n int) (regions, phones []string) {
	t.Helper()
	for _, region := range strings.Fields("CN DE FR IT ES PT NL BE AT CH PL CZ SE NO DK FI IE GR HU RO BG HR RS UA TR") {
		number := phonenumbers.GetExampleNumberForTypeInRegion(region, phonenumbers.MOBILE)
		regions, phones = append(regions, region), append(phones, phonenumbers.Format(number, phonenumbers.E164))
	}
	if len(phones) < n {
		t.Fatalf("%d countries, want %d", len(phones), n)
	}
	return regions[:n], phones[:n]
}

// The 20 countries with most requests have series of their own, and all others one together, so that the sums are those of all
// keys. What has expired follows from it: what was counted, and is neither refunded nor verified nor open.
func TestSends_MetricsAddUp(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	w := newSending(t, &now)
	regions, phones := phonesOf(t, countriesShown+2)
	for i, phone := range phones {
		for range 2 - i/countriesShown {
			w.sends(200, "POST", "/send", "X-Phone: "+phone)
		}
	}
	w.sends(503, "POST", "/send?status=503", "X-Phone: "+phones[0])
	w.sends(200, "POST", "/verify", "X-Phone: "+phones[0])
	w.sends(200, "POST", "/verify", "X-Phone: "+phones[countriesShown])

	text := w.scrape("text/plain")
	wants := func(series string, want float64) {
		t.Helper()
		if line := fmt.Sprintf("\n%s %v\n", series, want); !strings.Contains(text, line) {
			t.Errorf("no %s in the metrics", strings.TrimSpace(line))
		}
	}
	labels := func(limit, country, window string) string {
		return fmt.Sprintf(`{country=%q,limit=%q,route="send",window=%q}`, country, limit, window)
	}
	for i, region := range regions[:countriesShown] {
		wants("weir_sends_open"+labels("unused", region, "1d"), float64(min(2*i, 2)))
	}
	wants("weir_sends_open"+labels("unused", "other", "1d"), 1)
	wants(`weir_conversion_ratio{country="other",limit="unused",route="send"}`, 0.5)
	wants("weir_sends_open"+labels("unused-ip", "", "1d"), 2*countriesShown-1)
	wants("weir_sends_open"+labels("unused-range", "", "2d"), 2*countriesShown-1)
	if strings.Contains(text, labels("unused", "other", "1h")) || strings.Contains(text, labels("unused", regions[countriesShown], "1d")) {
		t.Error("there are series of the other countries, or of a window for which not all are counted")
	}
	sum := func(series string) (n float64) {
		for line := range strings.Lines(text) {
			var one float64
			if name, value, _ := strings.Cut(line, "} "); strings.HasPrefix(name, series) && !strings.Contains(name, `window="1h"`) {
				fmt.Sscan(value, &one)
			}
			n += one
		}
		return n
	}
	expired := func() float64 {
		text = w.scrape("text/plain")
		total := func(outcome string) float64 { return sum(`weir_sends_total{limit="unused",outcome="` + outcome + `"`) }
		open := 0.0
		for _, region := range append(regions, "other") {
			open += sum(fmt.Sprintf(`weir_sends_open{country=%q,limit="unused",`, region))
		}
		return total("counted") - total("refunded") - total("verified") - open
	}
	if got := expired(); got != 0 {
		t.Errorf("%v have expired, want none", got)
	}
	now = now.Add(25 * time.Hour)
	w.sends(200, "POST", "/send", "X-Phone: "+phones[1])
	if got := expired(); got != 2*countriesShown-1 {
		t.Errorf("%v have expired, want %d", got, 2*countriesShown-1)
	}
}

// A range in which more than half of a country was verified is marked, from two subjects on.
func TestSends_ARangeWithOverHalfOfItsCountry(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	w := newSending(t, &now)
	used := func(phone string) {
		t.Helper()
		w.sends(200, "POST", "/send", "X-Phone: "+phone)
		w.sends(200, "POST", "/verify", "X-Phone: "+phone)
	}
	shares := func() map[string]sends.CountryShare {
		t.Helper()
		q := sends.Query{N: 9, Limit: "unused-range"}
		all, err := w.Sends(t.Context(), q, w.TopSends(q))
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		got := map[string]sends.CountryShare{}
		for _, k := range all[0].Keys {
			if k.OfCountry != nil {
				got[k.Country+" "+strings.TrimPrefix(k.Masked, "range=")] = *k.OfCountry
			}
		}
		return got
	}
	wants := func(name string, want sends.CountryShare) {
		t.Helper()
		want.Limit, want.Window = "unused", "1d"
		if got := shares()[name]; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	used("+8613800138000")
	wants("CN +861380013", sends.CountryShare{Verified: 1, Of: 1}) // one says nothing of a range
	used("+8613800138001")
	wants("CN +861380013", sends.CountryShare{Verified: 2, Of: 2, OverHalf: true})
	used("+8613912345678")
	used("+8613912345679")
	wants("CN +861380013", sends.CountryShare{Verified: 2, Of: 4}) // half is not over half
	used("+8613800138002")
	wants("CN +861380013", sends.CountryShare{Verified: 3, Of: 5, OverHalf: true})
	wants("CN +861391234", sends.CountryShare{Verified: 2, Of: 5})
	used("+33612345678") // another country counts for itself
	wants("CN +861380013", sends.CountryShare{Verified: 3, Of: 5, OverHalf: true})
	wants("FR +3361234", sends.CountryShare{Verified: 1, Of: 1})
	w.sends(200, "POST", "/send", "X-Phone: +14155550123") // nothing is verified there
	if got := shares(); len(got) != 3 {
		t.Errorf("shares of %v", got)
	}
}
