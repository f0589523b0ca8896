package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nyaruka/phonenumbers/v2"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/sends"
)

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
