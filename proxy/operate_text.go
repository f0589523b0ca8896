package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/key"
)

// RateText returns a rate of l as operators write and read it: 5/1h, 400 EUR/1d of a budget, 4 at a time, or the
// steps of a cooldown.
func RateText(l *config.Limit, rate limiter.Rate) string {
	switch {
	case l.Algorithm.HasLeases():
		return strconv.FormatInt(rate.Count, 10) + " at a time"
	case l.Algorithm.HasSteps():
		var steps []string
		for _, s := range l.Steps {
			steps = append(steps, limiter.WindowName(s))
		}
		return strings.Join(steps, " ")
	}
	return l.RateText(rate)
}

// RateTexts returns all rates of l; a cooldown has one.
func RateTexts(l *config.Limit) []string {
	texts := []string{}
	for _, rate := range l.Rates {
		texts = append(texts, RateText(l, rate))
	}
	return texts
}

// An Amounts has numbers that are not plain ones: of a budget as money, 71.235 EUR, and of a cooldown the step that is
// used.
type Amounts struct {
	Most    string `json:"most,omitempty"`
	Used    string `json:"used"`
	Left    string `json:"left"`
	Granted string `json:"granted,omitempty"`
}

// amounts returns the numbers of w under l; nil if they are plain ones.
func (w WindowStanding) amounts(l *config.Limit) *Amounts {
	switch {
	case l.Algorithm.HasSteps() && !w.Unreadable:
		return &Amounts{Used: "step " + strconv.FormatInt(w.Used, 10), Left: strconv.FormatInt(w.Left, 10)}
	case l.Prices == nil:
		return nil
	}
	a := &Amounts{Most: l.Prices.Text(w.Most), Used: l.Prices.Text(w.Used), Left: l.Prices.Text(w.Left)}
	if w.Granted > 0 {
		a.Granted = l.Prices.Text(w.Granted)
	}
	return a
}

// Texts returns the numbers of w in their unit.
func (w WindowStanding) Texts() Amounts {
	if w.Amounts != nil {
		return *w.Amounts
	}
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	return Amounts{Most: text(w.Most), Used: text(w.Used), Left: text(w.Left), Granted: text(w.Granted)}
}

// amountText returns how numbers of permits of l are shown; nil if they are plain numbers.
func amountText(l *config.Limit) func(n int64) string {
	if l.Prices == nil {
		return nil
	}
	return l.Prices.Text
}

// ErrorText returns err for operators. Of an error about a store that cannot be reached it says what was to be done,
// and why it cannot be reached: "read nodes: redis is unreachable: no answer in time".
func ErrorText(err error) string {
	var away net.Error
	isAway := errors.As(err, &away)
	text := err.Error()
	if !isAway && !errors.Is(err, limiter.ErrUnavailable) {
		return text
	}
	what, _, _ := strings.Cut(text, ": ")
	what += ": "
	if strings.HasPrefix(text, limiter.ErrUnavailable.Error()) || strings.HasPrefix(text, "redis ") || isAway && text == away.Error() {
		what = "" // the error begins with that it cannot be reached
	}
	var at *net.OpError
	switch {
	case !isAway:
		_, cause, _ := strings.Cut(text, limiter.ErrUnavailable.Error()+": ")
		return strings.TrimSuffix(what+"the store is unreachable: "+cause, ": ")
	case away.Timeout():
		return what + "redis is unreachable: no answer in time"
	case errors.As(err, &at):
		return what + "redis is unreachable: " + at.Err.Error()
	}
	return what + "redis is unreachable: " + away.Error()
}

// A KeyResult is the result of a change. It does not contain the value of the key.
type KeyResult struct {
	KeyChange
	// Changed are the limits that were changed, and Skipped those that could not be.
	Changed []LimitStanding `json:"changed"` // their state after the change
	Skipped []SkippedLimit  `json:"skipped,omitempty"`
	Network *netip.Prefix   `json:"network,omitempty"` // that was banned or unbanned, in place of a key
	At      time.Time       `json:"at"`
	// Everywhere reports whether the change applies on all nodes. While Redis is unreachable, it
	// applies only on this node, as long as the node decides by itself. Later reports that it is
	// applied on all nodes when Redis is reachable again, if its time is not over and this node does not
	// end before.
	Everywhere bool `json:"everywhere"`
	Later      bool `json:"later,omitempty"`
	// Behind are the nodes that have not confirmed the change, although all nodes will follow.
	Behind []string `json:"behind,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	// Now is whether requests with the key are refused after the change, also by what it did not change.
	Now KeyVerdict `json:"now"`

	deferral *deferral // of the limits whose change waits for the store
}

// Settled reports whether what waited for the store waits no longer, and whether all of it was applied on all
// nodes.
func (r KeyResult) Settled() (settled, everywhere bool) {
	if r.deferral == nil {
		return true, r.Everywhere
	}
	return r.deferral.left.Load() == 0, !r.deferral.lost.Load()
}

// Where says on which nodes the change applies.
func (r KeyResult) Where() string {
	if len(r.Behind) > 0 {
		return BehindText(r.Behind)
	}
	here := r.Network != nil || r.Action == KeyAssign || r.Action == KeyUnassign || slices.ContainsFunc(r.Changed, func(l LimitStanding) bool { return l.Store != "" })
	switch {
	case r.Everywhere:
		return "on all nodes"
	case r.Later && here:
		return "on this node now, on all nodes when redis is back"
	case r.Later:
		return "on all nodes when redis is back"
	}
	return "on this node only"
}

// BehindText says on which nodes a change holds that some have not confirmed.
func BehindText(nodes []string) string {
	return "on all nodes but " + strings.Join(nodes, ", ") + ", not heard from: they follow within seconds"
}

// Affected returns the limits under which there was something to change, and Unaffected the others.
func (r KeyResult) Affected() (all []LimitStanding) {
	return slices.DeleteFunc(slices.Clone(r.Changed), func(l LimitStanding) bool { return l.Unaffected })
}

// Unaffected returns the limits under which the key had no ban to end, or nothing to reset.
func (r KeyResult) Unaffected() (all []LimitStanding) {
	return slices.DeleteFunc(slices.Clone(r.Changed), func(l LimitStanding) bool { return !l.Unaffected })
}

// Granted returns the most permits that a grant has given back under one rate.
func (r KeyResult) Granted() (most int64) {
	for _, l := range r.Changed {
		for _, w := range l.Windows {
			most = max(most, w.Granted)
		}
	}
	return most
}

// A SkippedLimit is a limit that was not changed.
type SkippedLimit struct {
	Route string `json:"route"`
	Limit string `json:"limit"`
	Why   string `json:"why"`
}

// A KeyVerdict is whether requests with a key are refused now.
type KeyVerdict struct {
	Refused bool `json:"refused"`
	// Text is a sentence: "refused now by send.phone 5/1h (banned) and send.country 900/1h, passes 08:03:55 UTC (38 min)".
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
	refusing = append(refusing, s.Denied...)
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
				by = append(by, LimitName(route, why))
				if at.After(until) {
					until = at
				}
			}
		}
		if len(by) == 0 {
			continue
		}
		text := strings.Join(by, " and ")
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
	return by + " (banned)", until
}

// Now returns whether requests with the key of c are refused, as a sentence that follows the change.
func (p *Proxy) Now(ctx context.Context, c KeyChange) KeyVerdict {
	s, err := p.Standing(ctx, KeyQuery{Pairs: c.Pairs})
	if err != nil {
		return KeyVerdict{Text: "not known whether it is refused: " + ErrorText(err)}
	}
	if len(s.Limits)+len(s.Networks) == 0 { // c is about a network
		return KeyVerdict{Text: "not refused: no network is banned there"}
	}
	v := s.Verdict()
	if rest, refused := strings.CutPrefix(v.Text, "refused now "); refused && c.Action != KeyBan {
		v.Text = "still refused " + rest
	}
	return v
}

// bansOf returns the bans of networks that hold for an address, or are within the network, that q names.
// targets are what q selects.
func (p *Proxy) bansOf(g *generation, q KeyQuery, targets []keyTarget) (all []directive.Directive) {
	set := p.directives.Load()
	if set == nil {
		return nil
	}
	for name, text := range g.textsOf(q, targets) {
		if !g.isAddress(name) {
			continue
		}
		network, err := netip.ParsePrefix(text)
		if addr, wrong := netip.ParseAddr(text); wrong == nil {
			addr = limiter.ClientAddr(addr)
			network, err = addr.Prefix(addr.BitLen())
		}
		if err == nil {
			all = append(all, set.Overlapping(network)...)
		}
	}
	return all
}

// textsOf returns the values that q names, by the names of their keys. Those of a key that is named by its id are
// known if this node remembers a request with it.
func (g *generation) textsOf(q KeyQuery, targets []keyTarget) map[string]string {
	texts := map[string]string{}
	for _, pair := range q.Pairs {
		texts[g.keyName(pair.Key)] = pair.Value
	}
	for _, t := range targets {
		maps.Copy(texts, t.given.Texts)
	}
	return texts
}

// denialsOf returns what else than limits refuses the requests that q names on the routes of targets: lists of
// the configuration, and maintenance.
func (p *Proxy) denialsOf(g *generation, q KeyQuery, targets []keyTarget) (all []string) {
	in := key.Input{Texts: g.textsOf(q, targets), IPv6Prefix: g.config.ClientIP.IPv6Prefix}
	for _, r := range g.routes {
		if !slices.ContainsFunc(targets, func(t keyTarget) bool { return t.limit.isOf(r.Name) }) {
			continue
		}
		if s := p.directives.Load(); s != nil {
			if _, on := s.Maintenance(r.Name, time.Now()); on {
				all = append(all, "the maintenance of "+r.Name)
			}
		}
		for _, l := range r.Lists {
			var v key.Value
			if _, err := l.Key.Read(in, &v); l.Action.Refuses() && err == nil && l.Members.Has(&v) == (l.Action == config.DenyListed) {
				all = append(all, "the list "+l.Name+" on "+r.Name)
			}
		}
	}
	return all
}
