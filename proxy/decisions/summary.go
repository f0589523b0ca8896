package decisions

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// summarize puts the limits that decided first, and sets the sentence about d: "refused by sms-send.range
// 20/10m (banned), passes 08:04:12 UTC (38 min)".
func (d *Decision) summarize() {
	rank := func(l Limit) int {
		return slices.Index([]string{nameRefused, nameShadowRefused, nameAllowed, nameNotAsked}, l.Result)
	}
	slices.SortStableFunc(d.Limits, func(a, b Limit) int {
		if a.Result == nameRefused && b.Result == nameRefused && a.WaitMS != b.WaitMS {
			return cmp.Compare(b.WaitMS, a.WaitMS) // by that of which the refusal lasts longest
		}
		return cmp.Compare(rank(a), rank(b))
	})
	d.Summary = d.verdict()
	if d.Fallback != "" {
		d.Summary += "; decided without the store, by on_store_failure: " + d.Fallback
	}
	switch d.Challenge {
	case "":
	case ChallengeIssued.String():
		d.Summary += "; a challenge was issued"
	case ChallengePassed.String():
		d.Summary += "; it passed by step_up"
	default:
		d.Summary += "; a challenge was issued, because its token was " + d.Challenge
	}
	if d.BanBegan {
		d.Summary += "; this refusal began a ban"
	}
	if d.Outcome == nameRefused && slices.ContainsFunc(d.Limits, func(l Limit) bool { return l.Result == nameNotAsked }) {
		d.Summary += "; this node remembered the refusal and asked no other limit"
	}
}

// verdict returns what decided.
func (d *Decision) verdict() string {
	switch by := d.of(nameRefused); {
	case d.Outcome == nameRefused && len(by) > 0:
		return "refused by " + d.names(by) + d.passes(by[0])
	case d.Outcome == nameRefused:
		return "refused: too many new keys"
	case d.Outcome == nameRejected && d.List != "":
		return "rejected by the list " + d.List
	case d.Outcome == nameRejected:
		return "rejected: " + cmp.Or(d.Error, fmt.Sprint("status ", d.Status))
	case d.Outcome == nameShadowRefused && len(d.of(nameShadowRefused)) > 0:
		return "allowed; in shadow mode it would have been refused by " + d.names(d.of(nameShadowRefused))
	case d.Outcome == nameShadowRefused:
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
func (d *Decision) of(result string) []Limit {
	return slices.DeleteFunc(slices.Clone(d.Limits), func(l Limit) bool { return l.Result != result })
}

// names returns the limits with their rates: "sms-send.range 20/10m (banned) and sms-send.phone 1/1m".
func (d *Decision) names(limits []Limit) string {
	var b strings.Builder
	for i, l := range limits {
		if i > 0 {
			b.WriteString(" and ")
		}
		if !l.Common {
			b.WriteString(d.Route + ".")
		}
		b.WriteString(l.Limit + " " + l.Permits)
		if l.Banned {
			b.WriteString(" (banned)")
		}
	}
	return b.String()
}

// passes returns when a request that l refused would pass.
func (d *Decision) passes(l Limit) string {
	wait := time.Duration(l.WaitMS * float64(time.Millisecond))
	if wait <= 0 {
		return ""
	}
	return ", passes " + Moment(d.At, d.At.Add(wait))
}

// Moment describes a time after now: 08:04:12 UTC (38 min), with its date if that is another.
func Moment(now, at time.Time) string {
	layout := time.TimeOnly
	if at.Truncate(24*time.Hour) != now.Truncate(24*time.Hour) {
		layout = time.DateTime
	}
	return at.UTC().Add(time.Second-1).Truncate(time.Second).Format(layout) + " UTC (" + roughly(at.Sub(now)) + ")"
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
