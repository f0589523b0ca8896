package proxy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// summarize puts the limits that decided first, and sets the sentence about d: "refused by sms-send.range
// 20/10m, banned, passes 08:04:12 UTC (38 min)".
func (d *Decision) summarize() {
	rank := func(l DecisionLimit) int {
		return slices.Index([]string{refused, shadowRefused, allowed, notAsked}, l.Result)
	}
	slices.SortStableFunc(d.Limits, func(a, b DecisionLimit) int {
		if a.Result == refused && b.Result == refused && a.WaitMS != b.WaitMS {
			return cmp.Compare(b.WaitMS, a.WaitMS) // by that of which the refusal lasts longest
		}
		return cmp.Compare(rank(a), rank(b))
	})
	d.Summary = d.verdict()
	if d.Fallback != "" {
		d.Summary += "; decided without the store, by on_store_failure: " + d.Fallback
	}
	if d.BanBegan {
		d.Summary += "; this refusal began a ban"
	}
	if d.Outcome == refused && slices.ContainsFunc(d.Limits, func(l DecisionLimit) bool { return l.Result == notAsked }) {
		d.Summary += "; this node remembered the refusal and asked no other limit"
	}
}

// verdict returns what decided.
func (d *Decision) verdict() string {
	switch by := d.of(refused); {
	case d.Outcome == refused && len(by) > 0:
		return "refused by " + d.names(by) + d.passes(by[0])
	case d.Outcome == refused:
		return "refused: too many new keys"
	case d.Outcome == outcomeRejected.String() && d.List != "":
		return "rejected by the list " + d.List
	case d.Outcome == outcomeRejected.String():
		return "rejected: " + cmp.Or(d.Error, fmt.Sprint("status ", d.Status))
	case d.Outcome == shadowRefused && len(d.of(shadowRefused)) > 0:
		return "allowed; in shadow mode it would have been refused by " + d.names(d.of(shadowRefused))
	case d.Outcome == shadowRefused:
		return "allowed; in shadow mode it would have been refused"
	case d.List != "":
		return "allowed by the list " + d.List
	case d.Repeated:
		return "allowed: it repeats a counted request"
	case d.Exempt || len(d.Limits) == 0:
		return "allowed: no limit applied"
	}
	return "allowed by all its limits"
}

// of returns the limits with that result.
func (d *Decision) of(result string) []DecisionLimit {
	return slices.DeleteFunc(slices.Clone(d.Limits), func(l DecisionLimit) bool { return l.Result != result })
}

// names returns the limits with their rates: "sms-send.range 20/10m, banned, and phone 1/1m".
func (d *Decision) names(limits []DecisionLimit) string {
	var b strings.Builder
	for i, l := range limits {
		if i > 0 {
			b.WriteString(" and ")
		} else {
			b.WriteString(d.Route + ".")
		}
		b.WriteString(l.Limit + " " + l.Permits)
		if l.Banned {
			b.WriteString(", banned")
		}
	}
	return b.String()
}

// passes returns when a request that l refused would pass.
func (d *Decision) passes(l DecisionLimit) string {
	wait := time.Duration(l.WaitMS * float64(time.Millisecond))
	if wait <= 0 {
		return ""
	}
	at := d.At.Add(wait)
	layout := time.TimeOnly
	if at.Truncate(24*time.Hour) != d.At.Truncate(24*time.Hour) {
		layout = time.DateTime
	}
	return ", passes " + at.Add(time.Second-1).Truncate(time.Second).Format(layout) + " UTC (" + roughly(wait) + ")"
}

// roughly returns d in its most significant unit, rounded up: 38 min.
func roughly(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}} {
		if d >= 2*u.unit {
			return fmt.Sprint(int64((d+u.unit-1)/u.unit), " ", u.name)
		}
	}
	return fmt.Sprint(int64((d+time.Second-1)/time.Second), " s")
}

// permits describes what a rate of a limit allows: 20/10m.
func permits(w *window) string {
	switch {
	case w.Algorithm.HasLeases():
		return fmt.Sprint(w.Limit.Rate.Count, " at a time")
	case w.Algorithm.HasSteps():
		return "cooldown"
	}
	return w.Limit.Rate.String()
}
