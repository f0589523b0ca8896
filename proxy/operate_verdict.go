package proxy

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/key"
)

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
