// Package view has what operators see of Weir: the state of keys, limits, decisions, nodes and upstreams. Each is one
// type, with the names that it has in JSON, from where it is found out to the admin API, the command line and the
// dashboard. It only describes: it asks nobody, and decides nothing.
//
// A field with the tag api:"-" is for other nodes; the API leaves it empty, and its document out.
package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// Duration writes a duration that people read, as the configuration does, in two units at most: 250ms, 38m5s, 1d14m, 1d2h. It is
// rounded up, so that 0s means that it has passed.
func Duration(d time.Duration) string {
	unit := time.Millisecond
	switch {
	case d > 25*time.Hour: // before, there are no hours beside the day
		unit = time.Hour
	case d > time.Hour:
		unit = time.Minute
	case d > time.Second:
		unit = time.Second
	}
	return limiter.FormatDuration((d + unit - 1).Truncate(unit))
}

// Moment describes a time after now: 08:04:12 UTC (38m5s), with its date if that is another.
func Moment(now, at time.Time) string {
	layout := time.TimeOnly
	if !at.Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		layout = time.DateTime
	}
	return fmt.Sprintf("%s UTC (%s)", at.UTC().Add(time.Second-1).Truncate(time.Second).Format(layout), Duration(at.Sub(now)))
}

// LimitName returns the name of a limit in texts: ROUTE.LIMIT, or LIMIT of one of several
// routes, which has no route.
func LimitName(route, limit string) string {
	if route == "" {
		return limit
	}
	return route + "." + limit
}

// Count returns n with its digits in groups of three.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// Share returns part as a percentage of whole.
func Share(part, whole int64) string {
	if part == 0 || whole <= 0 {
		return "0 %"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + " %"
}

// Plural returns a number with the word, in the plural unless it is 1.
func Plural(n, word string) string {
	if n != "1" {
		word += "s"
	}
	return n + " " + word
}

// AtLeast returns n, to which an unknown number may have to be added: 7, or ? if nothing is known, or ≥7 for at
// least 7.
func AtLeast(n, unknown int64, format func(int64) string) string {
	switch {
	case unknown == 0:
		return format(n)
	case n == 0:
		return "?"
	}
	return "≥" + format(n)
}

// Change returns b-a with its sign.
func Change(a, b int64, format func(int64) string) string {
	if b > a {
		return "+" + format(b-a)
	}
	return format(b - a)
}

// Verdict returns what the limits of s that are enforced do with the next request of the key: each that refuses it,
// and until when. Limits that count by other keys are not part of it.
func (s KeyStanding) Verdict() KeyVerdict {
	var refusing []string
	refuses := func(by string, until time.Time) {
		end, last := "", len(refusing)-1
		if !until.IsZero() {
			end = " until " + Moment(s.At, until)
		}
		if last >= 0 && end != "" && strings.HasSuffix(refusing[last], end) {
			by, refusing = strings.TrimSuffix(refusing[last], end)+", "+by, refusing[:last]
		}
		refusing = append(refusing, by+end)
	}
	for _, d := range s.Networks {
		text := "the ban of " + d.Network.String()
		if d.Route != "" {
			text += " on " + d.Route
		}
		refuses(text, d.Until)
	}
	refusing = append(refusing, s.Denied...)
	var asked, unknown int
	var most, scarce string // what a request may cost, and where that is little
	for _, l := range s.Limits {
		if l.Mode != "enforce" || l.Exempt {
			continue
		}
		isUnknown := l.Unknown != "" || slices.ContainsFunc(l.Windows, func(w WindowStanding) bool { return w.Unreadable })
		asked++
		if isUnknown {
			unknown++
		}
		if l.Denies {
			refuses(LimitName(l.Route, l.Limit)+" while Redis is unreachable", time.Time{})
		}
		if by, until := l.refuses(); by != "" {
			refuses(LimitName(l.Route, by), until)
		} else if l.Costs && !isUnknown {
			w := slices.MinFunc(l.Windows, func(a, b WindowStanding) int { return cmp.Compare(a.Left, b.Left) })
			text := "; " + LimitName(l.Route, l.Limit) + " refuses what costs more than " + w.Texts().Left
			most, scarce = most+text, scarce+map[bool]string{true: text}[w.Left < w.Most/10]
		}
	}
	switch {
	case len(refusing) > 0:
		return KeyVerdict{true, "refused now by " + strings.Join(refusing, "; by ") + scarce}
	case s.Chosen && unknown == 0:
		return KeyVerdict{Text: "not refused by the limits that were asked; others may refuse it"}
	case asked == 0:
		return KeyVerdict{Text: "not refused: no limit that is enforced counts by this key"}
	case unknown > 0:
		return KeyVerdict{Text: fmt.Sprintf("not known: %d of %d limits cannot be read", unknown, asked)}
	}
	return KeyVerdict{Text: "passes now: each enforced limit by this key has permits left" + most}
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
	if by != "" && l.Store == "local" {
		by += " (this node's share)"
	}
	if l.BannedUntil.After(until) {
		return l.Limit + " (banned)", l.BannedUntil
	}
	return by, until
}

// Done says what e did to a key, and how long before now: anna banned it for 1h, 2m5s ago.
func (e AuditEntry) Done(now time.Time) string {
	text := e.Who + " " + cmp.Or(map[KeyAction]string{
		KeyReset: "reset it", KeyGrant: fmt.Sprintf("granted it permits: %d", e.Permits), KeyBan: "banned it for " + e.For, KeyUnban: "unbanned it",
		KeyAssign: "assigned it a plan for " + e.For + " (" + e.Detail + ")", KeyUnassign: "ended the assignment of its plan",
	}[KeyAction(e.Action)], e.Action)
	text += ", " + Duration(now.Sub(e.At)) + " ago"
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}

// Each returns what f shows of each of all; without any it is empty, not nil.
func Each[T, R any](all []T, f func(T) R) []R {
	shown := make([]R, len(all))
	for i, one := range all {
		shown[i] = f(one)
	}
	return shown
}

// By returns all by what name returns for each; of several with one name the last.
func By[T any, K comparable](all []T, name func(T) K) map[K]T {
	by := make(map[K]T, len(all))
	for _, one := range all {
		by[name(one)] = one
	}
	return by
}

// AddNew appends those of more that all does not have.
func AddNew[T comparable](all []T, more ...T) []T {
	for _, one := range more {
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

// A Fact is told if it holds.
type Fact struct {
	Holds bool
	Text  string
}

// Holding returns the texts of the facts that hold, without empty ones.
func Holding(facts ...Fact) (texts []string) {
	for _, f := range facts {
		if f.Holds && f.Text != "" {
			texts = append(texts, f.Text)
		}
	}
	return texts
}
