package proxy

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/filetest"
)

// priced is a file whose prices are in prices.csv beside it.
func priced(t *testing.T, limits string) (yaml, prices string) {
	prices = filepath.Join(t.TempDir(), "prices.csv")
	filetest.Write(t, "+4915,mobile,0.075\n+49,*,0.08\n+43,*,0\n+881,*,2.10\n+1,*,0.01\n", prices)
	return `
keys:
  number: {from: "header:X-Phone", normalize: e164}
  country: {of: number, part: country}
prices: {sms: {file: '` + prices + `', key: number, unit: EUR}}
` + upstreamYAML(t, answerByStatus, "refund_on: {status: [5xx]}, limits: ["+limits+"]"), prices
}

const (
	german    = "X-Phone: +4915123456789" // 0.075
	american  = "X-Phone: +12015550123"   // 0.01
	austrian  = "X-Phone: +436641234567"  // nothing
	satellite = "X-Phone: +881612345678"  // 2.10
)

// However many requests come at a time, they spend no more than the budget, and all of it.
func TestBudget_IsExact(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		yaml, _ := priced(t, "{name: spend, key: global, budget: [1/1h, 5/31d], price: sms}")
		w := newProxy(t, yaml, use)
		send := func(number string, times int) int {
			return atOnce(times, func(int) bool { return w.send("POST", "/a", number).Code == 200 })
		}
		if got := send(german, 40); got != 13 { // 0.975
			t.Errorf("%d messages of 0.075 passed; want 13 of a budget of 1", got)
		}
		if got := send(american, 10); got != 2 { // 0.995
			t.Errorf("%d messages of 0.01 passed; want 2", got)
		}
		w.sends(200, "POST", "/a", austrian)
		w.sends(429, "POST", "/a", american)
		w.sends(403, "POST", "/a", satellite) // more than the budget
		w.counted(0.995, w.metrics.Spend.WithLabelValues("a", "spend", "EUR"))
		if got := testutil.ToFloat64(w.metrics.BudgetRemaining.WithLabelValues("a", "spend", "1h")); got < 0.0049 || got > 0.0051 {
			t.Errorf("weir_budget_remaining_ratio = %v; want 0.005", got)
		}
	})
}

// What was not sent costs nothing.
func TestBudget_IsRefunded(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		yaml, _ := priced(t, "{name: spend, key: country, budget: [0.15/1d], price: sms}, {name: other, key: number, rate: 9/1h}")
		w := newProxy(t, yaml, use)
		w.sendsAll(times(5, 503), "POST", "/a?status=503", german)
		w.sendsAll(times(2, 200), "POST", "/a", german)
		w.sends(429, "POST", "/a?status=503", german)
		w.sends(200, "POST", "/a", american) // another country
		w.counted(0.16, w.metrics.Spend.WithLabelValues("a", "spend", "EUR"))
	})
}

func TestBudget_IsShownOnlyIfExposed(t *testing.T) {
	for limit, want := range map[string]bool{"": false, ", expose: true": true} {
		yaml, _ := priced(t, "{name: spend, key: global, budget: [0.1/1d], price: sms"+limit+"}")
		w := newProxy(t, yaml)
		for _, status := range []int{200, 429} {
			rec := w.sends(status, "POST", "/a", german)
			if shown := strings.Contains(rec.Header().Get("RateLimit")+rec.Header().Get("RateLimit-Policy")+rec.Body.String(), "spend"); shown != want {
				t.Errorf("%d%s: %v %s; shown: %v", status, limit, rec.Header(), rec.Body, shown)
			}
		}
	}
}

// Prices are part of the configuration: new ones hold for what is spent from then on, and a list with a fault
// changes nothing.
func TestBudget_PricesAreReloaded(t *testing.T) {
	yaml, prices := priced(t, "{name: spend, key: global, budget: [1/1d], price: sms}")
	w := newProxy(t, yaml)
	w.sends(200, "POST", "/a", german)
	reload := func(text, problem string) {
		filetest.Write(t, text, prices)
		report, err := w.Reload(t.Context())
		if problem == "" && (err != nil || !report.Changed) || problem != "" && (err == nil || !strings.Contains(err.Error(), prices+problem)) {
			t.Errorf("Reload with %q = %+v, %v; want the problem %q", text, report, err, problem)
		}
	}
	reload("+4915,mobile,0.90\n+49,*\n", ":2:1: ")
	reload("", ":1:1: ")
	w.sends(200, "POST", "/a", german)
	reload("+4915,mobile,0.86\n", "")
	w.sends(429, "POST", "/a", german) // 0.15 are spent
	reload("+4915,mobile,0.85\n", "")
	w.sends(200, "POST", "/a", german)
	w.sends(429, "POST", "/a", american) // costs the dearest
}

// The amounts of overrides are money too.
func TestBudget_Overrides(t *testing.T) {
	yaml, _ := priced(t, "{name: spend, key: country, budget: [0.1/1d], price: sms, overrides: {DE: [0.2/1d], AT: [1/1d]}}")
	w := newProxy(t, yaml)
	w.sendsAll([]int{200, 200, 429}, "POST", "/a", german)
	w.sendsAll(append(times(10, 200), 429), "POST", "/a", american)
}

func TestBudget_IsExplained(t *testing.T) {
	yaml, _ := priced(t, "{name: spend, key: global, budget: [1/1d], price: sms}")
	w := newProxy(t, yaml)
	w.sends(200, "POST", "/a", german)
	for number, want := range map[string]string{
		german:                    "0.075 EUR: +4915, mobile, line 1 of prices.csv",
		"X-Phone: +493012345678":  "0.08 EUR: +49, *, line 2 of prices.csv",
		"X-Phone: +8613800138000": "2.1 EUR: no row has the number, so that it costs the dearest: +881, *, line 4 of prices.csv",
		"X-Phone: +436641234567":  "0 EUR: +43, *, line 3 of prices.csv",
	} {
		l := w.explains("POST", "/a", number).Limits[0]
		if l.Price != want {
			t.Errorf("%s costs %q; want %q", number, l.Price, want)
		}
		if number == german && (l.Windows[0].Rate != "1 EUR/1d" || l.Windows[0].Left != "0.925 EUR" || l.Exposed) {
			t.Errorf("explained as %+v", l)
		}
	}
}

// Operators freeze, free and raise the money of a country as they do with any limit.
func TestBudget_IsFrozenAndRaised(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		yaml, _ := priced(t, "{name: spend, key: country, budget: [0.15/1d], price: sms}")
		w := newProxy(t, yaml, use)
		w.changes(view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour)}, "country=DE")
		w.sends(429, "POST", "/a", german)
		w.sends(200, "POST", "/a", american)
		w.changes(view.KeyChange{Action: view.KeyUnban}, "country=DE")
		w.sendsAll([]int{200, 200, 429}, "POST", "/a", german)
		if r := w.changes(view.KeyChange{Action: view.KeyGrant, Permits: 7500}, "country=DE"); r.Changed[0].Windows[0].Rate != "0.15 EUR/1d" {
			t.Errorf("granted: %+v", r.Changed[0])
		}
		w.sendsAll([]int{200, 429}, "POST", "/a", german)
		w.changes(view.KeyChange{Action: view.KeyReset}, "country=DE")
		w.sendsAll([]int{200, 200, 429}, "POST", "/a", german)
	})
}
