package proxy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
)

// A KeyVerdict is whether requests with a key are refused now.
type KeyVerdict struct {
	Refused bool `json:"refused"`
	// Text is a sentence: "refused now by sms-send.phone 5/1h, passes 08:03:55 UTC (38 min)".
	Text string `json:"text"`
}

// Verdict returns what the limits of s that are enforced do with the next request of the key. A route passes
// when the last of its limits does. Limits that count by other keys are not part of it.
func (s KeyStanding) Verdict() KeyVerdict {
	var refusing []string
	for _, d := range s.Networks {
		text := "the ban of " + d.Network.String()
		if d.Route != "" {
			text += " on " + d.Route
		}
		refusing = append(refusing, text+", passes "+decisions.Moment(s.At, d.Until))
	}
	var asked, unknown int
	for _, route := range s.routes() {
		var by []string
		var until time.Time
		for _, l := range s.Limits {
			if l.Route != route || l.Mode != string(config.Enforce) {
				continue
			}
			asked++
			if l.Unknown != "" {
				unknown++
			}
			if why, at := l.refuses(); why != "" {
				by = append(by, why)
				if at.After(until) {
					until = at
				}
			}
		}
		if len(by) == 0 {
			continue
		}
		text := route + "." + strings.Join(by, " and ")
		if !until.IsZero() {
			text += ", passes " + decisions.Moment(s.At, until)
		}
		refusing = append(refusing, text)
	}
	switch {
	case len(refusing) > 0:
		return KeyVerdict{true, "refused now by " + strings.Join(refusing, "; by ")}
	case asked == 0:
		return KeyVerdict{Text: "not refused: no limit that is enforced counts by this key"}
	case unknown > 0:
		return KeyVerdict{Text: fmt.Sprintf("not known: %d of %d limits cannot be read", unknown, asked)}
	case asked == 1:
		return KeyVerdict{Text: "passes now: the only limit by this key has permits left"}
	}
	return KeyVerdict{Text: fmt.Sprintf("passes now: all %d limits by this key have permits left", asked)}
}

// routes returns the routes of the limits of s, in their order.
func (s KeyStanding) routes() (all []string) {
	for _, l := range s.Limits {
		if !slices.Contains(all, l.Route) {
			all = append(all, l.Route)
		}
	}
	return all
}

// refuses returns by which rate l refuses the next request of the key, and until when; "" if it does not.
// The time is zero where it depends on other requests.
func (l LimitStanding) refuses() (by string, until time.Time) {
	for _, w := range l.Windows {
		if w.Left > 0 || w.Most == 0 || w.Unreadable {
			continue
		}
		if by == "" || w.Next.After(until) {
			by, until = l.Limit+" "+w.Rate, w.Next
		}
	}
	if a, err := limiter.ParseAlgorithm(l.Algorithm); by != "" && err == nil && a.HasValues() {
		by += " (new values only)"
	}
	if l.BannedUntil.IsZero() {
		return by, until
	}
	if l.BannedUntil.After(until) {
		until = l.BannedUntil
	}
	if by == "" {
		by = l.Limit
	}
	return by + ", banned", until
}
