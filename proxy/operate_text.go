package proxy

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/view"
)

// amountsOf returns the numbers of w under l; nil if they are plain ones.
func amountsOf(w view.WindowStanding, l *limit.Limit) *view.Amounts {
	text := l.AmountText()
	switch {
	case l.Algorithm.HasSteps() && !w.Unreadable:
		return &view.Amounts{Used: "step " + strconv.FormatInt(w.Used, 10), Left: strconv.FormatInt(w.Left, 10)}
	case text == nil:
		return nil
	}
	a := &view.Amounts{Most: text(w.Most), Used: text(w.Used), Left: text(w.Left)}
	if w.Granted > 0 {
		a.Granted = text(w.Granted)
	}
	return a
}

// ErrorText returns err for operators. Of an error about a store that cannot be reached it says why that is, whatever was to
// be done: "redis is unreachable: no answer in time".
func ErrorText(err error) string {
	if why, is := Unreachable(err); is {
		return why
	}
	return err.Error()
}

// Unreachable returns that the store cannot be reached, and why, if err is about that.
func Unreachable(err error) (text string, is bool) {
	away, isNet := errors.AsType[net.Error](err)
	at, isOp := errors.AsType[*net.OpError](err)
	switch {
	case isNet && away.Timeout():
		return "redis is unreachable: no answer in time", true
	case isNet && isOp:
		return "redis is unreachable: " + at.Err.Error(), true
	case isNet:
		return "redis is unreachable: " + away.Error(), true
	case errors.Is(err, limiter.ErrUnavailable):
		_, cause, _ := strings.Cut(err.Error(), limiter.ErrUnavailable.Error()+": ")
		return strings.TrimSuffix("the store is unreachable: "+cause, ": "), true
	}
	return "", false
}

// Now returns whether requests with the key of c are refused, as a sentence that follows the change.
func (p *Proxy) Now(ctx context.Context, c view.KeyChange) view.KeyVerdict {
	s, err := p.Standing(ctx, view.KeyQuery{Pairs: c.Pairs})
	if err != nil {
		return view.KeyVerdict{Text: "not known whether it is refused: " + ErrorText(err)}
	}
	if len(s.Limits)+len(s.Networks) == 0 { // c is about a network
		return view.KeyVerdict{Text: "not refused: no network is banned there"}
	}
	v := s.Verdict()
	if rest, refused := strings.CutPrefix(v.Text, "refused now "); refused && c.Action != view.KeyBan {
		v.Text = "still refused " + rest
	}
	return v
}

// bansOf returns the bans of networks that hold for an address, or are within the network, that q names.
// targets are what q selects.
func (p *Proxy) bansOf(g *generation, q view.KeyQuery, targets []keyTarget) (all []directive.Directive) {
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
func (g *generation) textsOf(q view.KeyQuery, targets []keyTarget) map[string]string {
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
func (p *Proxy) denialsOf(g *generation, q view.KeyQuery, targets []keyTarget) (all []string) {
	in := key.Input{Texts: g.textsOf(q, targets), IPv6Prefix: g.config.ClientIP.IPv6Prefix}
	for _, r := range g.routes {
		if !slices.ContainsFunc(targets, func(t keyTarget) bool { return t.limit.IsOf(r.Name) }) {
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
