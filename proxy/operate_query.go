package proxy

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/limit"

	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// NetworkOf returns the network that q names, if it is one that is not counted as one client. Errors wrap
// ErrKeyQuery.
func (p *Proxy) NetworkOf(q view.KeyQuery) (network netip.Prefix, named bool, err error) {
	g := p.current.Load()
	if len(q.Pairs) != 1 || !g.isAddress(q.Pairs[0].Key) || !strings.Contains(q.Pairs[0].Value, "/") {
		return network, false, nil
	}
	if _, err := p.findTargets(g, q); err == nil {
		return network, false, nil // a network of IPv6 that limits count as one
	}
	network, err = netip.ParsePrefix(strings.TrimSpace(q.Pairs[0].Value))
	switch {
	case err != nil, network.Addr().Is4In6(): // by which no client counts
		return network, true, fmt.Errorf("%w: not a network; write one such as 203.0.113.0/24 or 2001:db8::/48", view.ErrKeyQuery)
	case limiter.IsTranslated(network):
		return network, true, fmt.Errorf("%w: clients of NAT64 count by their IPv4 address; write the network of IPv4", view.ErrKeyQuery)
	case network.Bits() == 0:
		return network, true, fmt.Errorf("%w: that is everybody; write weir maintenance on", view.ErrKeyQuery)
	case q.Limit != "":
		return network, true, fmt.Errorf("%w: a network is banned on all or one of the routes, not under a limit; leave the limit out", view.ErrKeyQuery)
	}
	_, _, err = g.checkNames(q.Route, "")
	return network.Masked(), true, err
}

// CheckNames returns the names of a route and of one of its limits as they are configured, of which that of the limit may be a
// full one, and both empty. If there is none of that name, the error says which there are, and wraps ErrKeyQuery.
func (p *Proxy) CheckNames(route, name string) (ofRoute, ofLimit string, err error) {
	return p.current.Load().checkNames(route, name)
}

func (g *generation) checkNames(route, name string) (ofRoute, ofLimit string, err error) {
	names, on := []string{}, strings.TrimSuffix(" on route "+route, " on route ")
	for _, l := range g.limits {
		if name != "" && l.IsNamed(route, name) {
			if l.Name != name {
				route = l.Route
			}
			return route, l.Name, nil
		}
		if l.IsNamed(route, "") {
			names = append(names, l.Name)
		}
	}
	routes := []string{}
	for _, r := range g.routes {
		routes = append(routes, r.Name)
	}
	switch {
	case route != "" && !slices.Contains(routes, route):
		err = fmt.Errorf("%w: there is no route %q; write one of %s", view.ErrKeyQuery, route, joinNames(routes))
	case name != "":
		err = fmt.Errorf("%w: there is no limit %q%s; write one of %s", view.ErrKeyQuery, name, on, joinNames(names))
	}
	return route, name, err
}

// isAddress reports whether a key of that name is the address of the client.
func (g *generation) isAddress(name string) bool {
	if s := g.config.Keys[name]; s != nil {
		return s.Of == nil && s.Join == nil && s.From.Source.IsAddress()
	}
	return g.keyName(name) == key.ClientIP.String()
}

// given returns the pairs by name. A KeyID must be the only pair.
func (g *generation) given(q view.KeyQuery) (key.Input, error) {
	in := key.Input{Texts: map[string]string{}, IPv6Prefix: g.config.ClientIP.IPv6Prefix}
	if len(q.Pairs) == 0 {
		return in, fmt.Errorf("%w: no key is named; write KEY=VALUE, for example phone=+8613800138000", view.ErrKeyQuery)
	}
	for _, p := range q.Pairs {
		name := g.keyName(p.Key)
		if _, twice := in.Texts[name]; twice {
			return in, fmt.Errorf("%w: %s is given twice; name each part of a key once", view.ErrKeyQuery, name)
		}
		in.Texts[name] = p.Value
	}
	return in, nil
}

// keyName returns the name of the key that text names: that of the configuration, or an origin, of which ip and
// client_ip are the same.
func (g *generation) keyName(text string) string {
	if _, named := g.config.Keys[text]; named {
		return text
	}
	return key.CanonicalName(key.LongName(text))
}

// countingSends returns the limits with return_on that q selects.
func (g *generation) countingSends(q sends.Query) (all []*limit.Limit) {
	for _, l := range g.limits {
		if l.Sends != nil && l.IsNamed(q.Route, q.Limit) {
			all = append(all, l)
		}
	}
	return all
}

// TopSends returns the keys of limits with return_on of which most requests were not refused on this node, within the longest
// window of each limit and since this node was started.
func (p *Proxy) TopSends(q sends.Query) view.Top {
	g := p.current.Load()
	now, top, names := p.shared.observer.Minute(time.Now()), view.Top{}, g.naming()
	if q.PassedOn {
		names.Display = key.Display{Address: g.redact.shownAddress, All: true, Ranges: true}
	}
	for _, l := range g.countingSends(q) {
		list := l.Top.TopSends(now, q.N, names)
		list.Route, list.Limit = l.Route, l.Name
		top.Limits = append(top.Limits, list)
	}
	return top
}

// Sends returns what became of the requests that limits with return_on count, of all keys and of those that top lists. The
// numbers are those of the store. Errors wrap limiter.ErrUnavailable.
func (p *Proxy) Sends(ctx context.Context, q sends.Query, top view.Top) ([]sends.LimitCounts, error) {
	ctx, cancel := context.WithTimeout(ctx, operateTimeout)
	defer cancel()
	g, all := p.current.Load(), []sends.LimitCounts{}
	for _, l := range g.countingSends(q) {
		counted, err := p.admitter.ReadSends(ctx, l.Sends.OfAll())
		if err != nil {
			return nil, err
		}
		out := l.Counts(counted)
		for _, list := range top.Limits {
			if list.Route != l.Route || list.Limit != l.Name {
				continue
			}
			out.Floor = list.Requests.Floor
			for _, entry := range list.Requests.Keys {
				id, found, err := g.redact.readKeyID(entry.ID)
				if err != nil || !found {
					continue // of a node that has not got the salt of the cluster yet
				}
				k, err := p.sendsOfKey(ctx, l, id)
				if err != nil {
					return nil, err
				}
				k.Masked, k.Hash, k.ID, k.Country = entry.Masked, entry.Hash, entry.ID, entry.Country
				out.Keys = append(out.Keys, k)
			}
		}
		if err := p.compareRanges(ctx, g, l, out.Keys); err != nil {
			return nil, err
		}
		slices.SortStableFunc(out.Keys, func(a, b sends.KeyCounts) int { return cmp.Compare(b.Sent, a.Sent) })
		all = append(all, out)
	}
	return all, nil
}

// compareRanges compares keys of l, if they are ranges of phone numbers, with their countries.
func (p *Proxy) compareRanges(ctx context.Context, g *generation, l *limit.Limit, keys []sends.KeyCounts) error {
	countries := map[string]sends.KeyCounts{}
	for i := range keys {
		k := &keys[i]
		if l.Country == nil || k.Country == "" {
			continue
		}
		if _, isRead := countries[k.Country]; !isRead {
			var v key.Value
			if _, err := l.Country.Key.Read(key.Input{Texts: map[string]string{l.Country.Key.Name: k.Country}}, &v); err != nil {
				return fmt.Errorf("read the country of a range: %w", err)
			}
			country, err := p.sendsOfKey(ctx, l.Country, g.config.Privacy.Hash(v.Parts))
			if err != nil {
				return err
			}
			countries[k.Country] = country
		}
		k.OfCountry = sends.ShareOf(l.Country.Name, k.Rates, countries[k.Country].Rates)
	}
	return nil
}

// sendsOfKey returns the numbers of a key of a limit.
func (p *Proxy) sendsOfKey(ctx context.Context, l *limit.Limit, id limiter.Key) (k sends.KeyCounts, err error) {
	t := newKeyTarget(l, id)
	claims := l.ClaimsUnder(id, t.windows, t.redissonName)[:len(t.windows)] // without that of a penalty
	statuses, err := p.admitter.ReadSends(ctx, append(claims, l.Sends.OfKey(id)...))
	if err != nil {
		return k, err
	}
	longest, open := time.Duration(0), int64(0)
	for i, w := range t.windows {
		s := statuses[i]
		k.Rates = append(k.Rates, sends.RateCounts{Rate: w.Of.RateText(w.Written(w.Rate)), Window: limiter.WindowName(w.Rate.Window), Open: s.Used, Allowed: s.Allowed, Verified: s.Confirmed})
		if w.Rate.Window > longest {
			longest, open, k.Rated = w.Rate.Window, s.Used, w.Rate.Count
		}
		switch {
		case s.Overflow:
			k.Unknown = "memory for keys is used up: the key shares its counts with others"
		case s.Unreadable:
			k.Unknown = "the store has a value of another type for the key; a reset repairs it"
		}
	}
	if k.Unknown != "" {
		return sends.KeyCounts{Rates: []sends.RateCounts{}, Unknown: k.Unknown}, nil
	}
	k.Counts = l.Sends.ReadKey(open, statuses[len(t.windows):])
	return k, nil
}
