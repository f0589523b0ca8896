package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
)

// A share is of what the limit decided on all nodes, and of ten refusals at least.
func TestAlert_ShareOfDecisions(t *testing.T) {
	report := func(refused, allowed int64) minuteReport {
		return minuteReport{Tallies: []Tally{
			{Series: proxy.Series{Route: "send", Limit: "phone", Result: "refused"}, N: refused},
			{Series: proxy.Series{Route: "send", Limit: "phone", Result: "allowed"}, N: allowed},
			{Series: proxy.Series{Route: "send", Limit: "other", Result: "allowed"}, N: 100},
			{Series: proxy.Series{Route: "send", Result: "refused"}, N: refused}, // the requests
		}}
	}
	rules := config.Alerts{Refused: config.Threshold{Count: 10, Share: 5}}
	for _, c := range []struct {
		a, b minuteReport
		want int64 // requests that the alert speaks of; 0 for no alert
	}{
		{report(6, 100), report(4, 90), 200},
		{report(6, 100), report(4, 91), 0},  // less than 5 %
		{report(5, 1), report(4, 1), 0},     // fewer than 10
		{report(10, 0), report(0, 0), 10},   // all
		{report(0, 500), report(0, 500), 0}, // none
	} {
		got := findAlerts(rules, map[string]minuteReport{"a": c.a, "b": c.b}, time.Now())
		if c.want == 0 && len(got) > 0 || c.want > 0 && (len(got) != 1 || got[0].Of != c.want || got[0].Limit != "phone") {
			t.Errorf("%+v and %+v: alerts %+v; want one of %d requests", c.a, c.b, got, c.want)
		}
	}
}

// Of several parts of a budget, each that is reached has an alert of its own, once in its window.
func TestAlert_SeveralShares(t *testing.T) {
	rules := config.Alerts{Refused: config.Threshold{Count: 100}, Used: []int64{50, 80, 100}, Repeat: time.Hour}
	of := func(used int64) (shares []int64) {
		near := proxy.Near{Route: "send", Limit: "spend", Window: "31d", Used: used, Of: 400_00, Money: "some EUR of 400 EUR"}
		subjects := map[string]bool{}
		for _, a := range findAlerts(rules, map[string]minuteReport{"a": {Near: []proxy.Near{near}}}, time.Now()) {
			shares = append(shares, a.Share)
			subjects[a.subject()] = true
			if a.repeat(rules) != 31*24*time.Hour || !strings.Contains(a.Text, "has used some EUR of 400 EUR in 31d") {
				t.Errorf("alert %+v after %v", a, a.repeat(rules))
			}
		}
		if len(subjects) != len(shares) {
			t.Errorf("%d alerts have %d subjects", len(shares), len(subjects))
		}
		return shares
	}
	for used, want := range map[int64][]int64{199_99: nil, 200_00: {50}, 319_99: {50}, 320_00: {50, 80}, 400_00: {50, 80, 100}} {
		if got := of(used); !slices.Equal(got, want) {
			t.Errorf("at %d: alerts about %v; want %v", used, got, want)
		}
	}
	rules.Used = []int64{80}
	for _, a := range findAlerts(rules, map[string]minuteReport{"a": {Near: []proxy.Near{{Window: "1d", Used: 80, Of: 100}}}}, time.Now()) {
		if a.Share != 0 || a.repeat(rules) != time.Hour {
			t.Errorf("of one part: %+v after %v; want one every hour", a, a.repeat(rules))
		}
	}
}

func TestDrift_IsToldOnceItLasts(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	var d driftTracker
	for _, row := range []struct {
		at     time.Duration
		others int
		told   int
		news   bool
	}{
		{0, 0, 0, false},
		{2 * time.Second, 1, 0, false}, // a reload is under way
		{4 * time.Second, 0, 0, false},
		{6 * time.Second, 1, 0, false},
		{6*time.Second + driftAfter - 1, 1, 0, false},
		{6*time.Second + driftAfter, 1, 1, true},
		{8*time.Second + driftAfter, 1, 1, false}, // once
		{9*time.Second + driftAfter, 3, 3, true},
		{10*time.Second + driftAfter, 0, 0, true},
		{11*time.Second + driftAfter, 2, 0, false}, // from the beginning
	} {
		if told, news := d.note(begin.Add(row.at), row.others); told != row.told || news != row.news {
			t.Errorf("at %v with %d others: told of %d, news %v; want %d, %v", row.at, row.others, told, news, row.told, row.news)
		}
	}
}

func TestReachable_IsTheMachineForAWildcard(t *testing.T) {
	for _, address := range []string{"127.0.0.1:9901", "10.0.0.1:9901", "[2001:db8::1]:9901", ""} {
		if got := externalAddress(address); got != address {
			t.Errorf("%q is reached at %q; want as it is", address, got)
		}
	}
	for _, address := range []string{":9901", "0.0.0.0:9901", "[::]:9901"} {
		if got := externalAddress(address); got == address || got[len(got)-5:] != ":9901" {
			t.Errorf("%q is reached at %q; want the machine's name", address, got)
		}
	}
}

func TestParseCounted(t *testing.T) {
	key := limiter.KeyOf("p")
	for text, limit := range map[string]string{
		"{" + key.String() + "}:a.l:1h:value":              "a.l:1h",
		"{" + key.String() + "}:a.l:1h:fixed_window:value": "a.l:1h",
		"{" + key.String() + "}:a.l:held:concurrent:base":  "a.l:held",
		"{" + key.String() + "}:a.l:1h:{distinct}:permits": "a.l:1h",
		"{" + key.String() + "}:a.l{7}":                    "a.l{",
		"{" + key.String() + "}:a.l:odd{c}:client":         "a.l:odd{",
		"{" + key.String() + "}:a.l{n}":                    "",
		"{" + strings.Repeat("x", 32) + "}:a.l:1h:value":   "",
		"{" + key.String()[:30] + "}:a.l:1h:value":         "",
		"{cluster}:config":                                 "",
		"nonsense":                                         "",
	} {
		c, ok := parseCounted(text)
		if ok != (limit != "") || ok && (c.Limit != limit || c.Key != key) {
			t.Errorf("%s is %+v, %v; want %q", text, c, ok, limit)
		}
	}
}
