package cluster

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
)

// A share is of what the limit decided on all nodes, and of ten refusals at least.
func TestAlert_ShareOfDecisions(t *testing.T) {
	report := func(refused, allowed int64) minuteReport {
		return minuteReport{Tallies: []Tally{
			{proxy.Series{Route: "send", Limit: "phone", Result: "refused"}, refused},
			{proxy.Series{Route: "send", Limit: "phone", Result: "allowed"}, allowed},
			{proxy.Series{Route: "send", Limit: "other", Result: "allowed"}, 100},
			{proxy.Series{Route: "send", Result: "refused"}, refused}, // the requests
		}}
	}
	rules := config.Alerts{Refused: 10, RefusedShare: 5}
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
