package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
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
	return network.Masked(), true, nil
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
		switch _, twice := in.Texts[name]; {
		case twice:
			return in, fmt.Errorf("%w: %s is given twice; name each part of a key once", view.ErrKeyQuery, name)
		case strings.ContainsRune(p.Value, utf8.RuneError): // JSON has it in place of other bytes
			return in, fmt.Errorf("%w: the value of %s is not UTF-8; name the key by its id or hash: %[2]s=id:..., %[2]s=hash:...", view.ErrKeyQuery, name)
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

// A keyTarget is one limit that counts by the key an operator has named.
type keyTarget struct {
	limit        *limit.Limit
	spec         *key.Spec // the key of the limit, or its replacement
	key          limiter.Key
	previous     limiter.Key // under the previous secret, if rotates
	rotates      bool
	byID         bool
	windows      []*limit.Window
	overridden   bool                // windows are those of the key alone
	planUnknown  bool                // the plan is that of each request, and no recent one is known
	redissonName string              // the name of the shared Redisson limiter; empty if it is not shared
	away         bool                // the store did not answer about the key
	done         limit.AppliedChange // by a change; zero if there is none
	standing     view.LimitStanding  // Unknown if the limit cannot be queried
	given        key.Input           // what determines the key; of one that was named by its id, as far as this node remembers it
}

// findTargets returns the limits selected by q: those that count by exactly the named key, and those
// that count by a part of it. Errors wrap ErrKeyQuery.
func (g *generation) findTargets(q view.KeyQuery, known func(hash string) (limiter.Key, bool)) ([]keyTarget, error) {
	given, err := g.given(q)
	if err != nil {
		return nil, err
	}
	id, byID, err := g.readID(q, known)
	if err == nil {
		q.Route, q.Limit, err = g.checkNames(q.Route, q.Limit)
	}
	if err != nil {
		return nil, err
	}
	var all []keyTarget
	var wrong error
	for _, l := range g.limits {
		if !l.IsNamed(q.Route, q.Limit) {
			continue
		}
		var t keyTarget
		found := false
		if byID {
			t, found = g.matchID(l, g.keyName(q.Pairs[0].Key), id)
		} else {
			var err error
			if t, found, err = g.matchValue(l, given); wrong == nil {
				wrong = err
			}
		}
		if found {
			all = append(all, t)
		}
	}
	switch {
	case len(all) > 0:
		return all, nil
	case wrong != nil:
		return nil, fmt.Errorf("%w: %w", view.ErrKeyQuery, wrong)
	}
	return nil, g.noTargetError(q, given)
}

// readID reads the value of a query if it is a key id or a hash in the log.
func (g *generation) readID(q view.KeyQuery, known func(hash string) (limiter.Key, bool)) (k limiter.Key, found bool, err error) {
	if len(q.Pairs) != 1 {
		return k, false, nil
	}
	if hash, is := strings.CutPrefix(q.Pairs[0].Value, "hash:"); is && hashAlone.MatchString(hash) {
		if k, found = known(hash); !found {
			return k, true, fmt.Errorf("%w: no recent request on this node had this key; give its value, or ask the node that logged it", view.ErrKeyQuery)
		}
		return k, true, nil
	}
	if k, found, err = g.redact.readKeyID(q.Pairs[0].Value); !found && cutID.MatchString(q.Pairs[0].Value) {
		err = fmt.Errorf("%w: %q is neither a whole id nor a whole hash; copy all of it", view.ErrKeyQuery, q.Pairs[0].Value)
	}
	return k, found, err
}

// newKeyTarget returns the target of a limit for the key k.
func newKeyTarget(l *limit.Limit, k limiter.Key) keyTarget {
	t := keyTarget{limit: l, key: k, windows: l.Windows}
	if own, ok := l.ByKey[k]; ok {
		t.windows, t.overridden = own, true
	}
	return t
}

// matchID returns the target of l for k, and reports whether l counts by a key of that name.
func (g *generation) matchID(l *limit.Limit, name string, k limiter.Key) (t keyTarget, found bool) {
	specs := append([]*key.Spec{l.Key}, l.Key.Replacements()...)
	i := slices.IndexFunc(specs, func(s *key.Spec) bool {
		return s.Name == name || name == key.ClientIP.String() && s.From.Source.IsAddress()
	})
	if i < 0 {
		return t, false
	}
	t = newKeyTarget(l, k)
	t.spec, t.standing.Masked, t.standing.Logged, t.byID = specs[i], specs[i].Name, specs[i].Name, true
	if l.HasKeyName {
		t.standing.Unknown = "the name of the shared Redisson limiter contains the value, which an id does not reveal; give the value"
	}
	t.redissonName = l.RedissonName
	return t, true
}

// matchValue returns the target of l for the given values, and reports whether l counts by them.
func (g *generation) matchValue(l *limit.Limit, given key.Input) (t keyTarget, found bool, err error) {
	var v key.Value
	r, err := l.Key.Read(given, &v)
	if errors.Is(err, key.ErrMissing) || err == nil && len(r.Names) != len(given.Texts) {
		return t, false, nil
	}
	if err != nil {
		return t, false, err
	}
	t = newKeyTarget(l, g.config.Privacy.Hash(v.Parts))
	t.given = given
	t.spec = l.Key
	t.standing.Derived, t.standing.Masked, t.standing.Logged = r.Derived, g.display().Value(&v), g.logDisplay().Value(&v)
	t.setPlan(l.PlanList().Name(&v))
	var valid bool
	if t.redissonName, valid = l.SharedName(v.Text()); !valid {
		return t, false, fmt.Errorf("%s: %w: it cannot be part of the name of a limiter", l.Key.Name, key.ErrInvalid)
	}
	if !l.IsShared() {
		t.previous, t.rotates = g.config.Privacy.PreviousHash(v.Parts)
	}
	return t, true, nil
}

// setPlan sets the plan of the key, unless it has rates of its own.
func (t *keyTarget) setPlan(name string) {
	p := t.limit.ByPlan[name]
	if p == nil || t.overridden {
		return
	}
	t.standing.Plan, t.windows, t.standing.Unknown, t.standing.Exempt = name, p.Windows, "", len(p.Windows) == 0
	if t.standing.Exempt {
		t.standing.Unknown = "its plan " + name + " has no limit"
	}
}

// claims returns the claims on the windows of t and, for a limit with a penalty, on its count of
// refusals; then the same under the previous secret.
func (t *keyTarget) claims() []limiter.Claim { return t.claimsOn(t.windows) }

func (t *keyTarget) claimsOn(windows []*limit.Window) []limiter.Claim {
	claims := t.limit.ClaimsUnder(t.key, windows, t.redissonName)
	if t.rotates {
		claims = append(claims, t.limit.ClaimsUnder(t.previous, windows, t.redissonName)...)
	}
	return claims
}

// display returns how keys are displayed to operators.
func (g *generation) display() key.Display { return key.Display{Address: g.redact.shownAddress} }

// logDisplay returns how keys are displayed where they are kept: in the process log and the audit trail.
func (g *generation) logDisplay() key.Display {
	return key.Display{Address: g.redact.shownAddress, All: true}
}

// noTargetError returns an error that says why no limit is selected by q.
func (g *generation) noTargetError(q view.KeyQuery, given key.Input) error {
	var names []string
	var joined *key.Spec // a joined key of which only some parts are given
	for _, l := range g.limits {
		if !l.IsNamed(q.Route, q.Limit) {
			continue
		}
		names = append(names, l.Key.Names()...)
		isOther := func(name string) bool { return name != l.Key.Name && !slices.Contains(leafNames(l.Key), name) }
		if l.Key.Join != nil && !slices.ContainsFunc(slices.Collect(maps.Keys(given.Texts)), isOther) {
			joined = l.Key
		}
	}
	chosen := map[bool]string{true: " among those of this route or name"}[q.Route+q.Limit != ""]
	if len(names) == 0 {
		return fmt.Errorf("%w: there is no limit%s, and so none counts by a key", view.ErrKeyQuery, chosen)
	}
	for name := range given.Texts {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%w: no limit counts by %q%s; write one of %s", view.ErrKeyQuery, name, chosen, joinNames(names))
		}
	}
	if joined != nil {
		return fmt.Errorf("%w: %s consists of several keys; give a value for each of %s", view.ErrKeyQuery, joined.Name, joinNames(leafNames(joined)))
	}
	return fmt.Errorf("%w: no limit counts by these keys together; give one of them, or all parts of a joined key", view.ErrKeyQuery)
}

// maxListed is the maximum number of names that an error lists.
const maxListed = 20

// joinNames returns the names in order and without duplicates.
func joinNames(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) > maxListed {
		names = append(names[:maxListed], "...")
	}
	return strings.Join(names, ", ")
}

func leafNames(s *key.Spec) []string {
	return view.Each(s.Components(), func(leaf *key.Spec) string { return leaf.Name })
}

// countingSends returns the limits with return_on that q selects.
func (g *generation) countingSends(q sends.Query) []*limit.Limit {
	return slices.DeleteFunc(slices.Clone(g.limits), func(l *limit.Limit) bool { return l.Sends == nil || !l.IsNamed(q.Route, q.Limit) })
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
	for i, w := range t.windows {
		s := statuses[i]
		k.Rates = append(k.Rates, sends.RateCounts{Rate: w.Of.RateText(w.Written(w.Rate)), Window: limiter.WindowName(w.Rate.Window), Open: s.Used, Allowed: s.Allowed, Verified: s.Confirmed})
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
	at := longest(t.windows)
	k.Rated, k.Counts = t.windows[at].Rate.Count, l.Sends.ReadKey(statuses[at].Used, statuses[len(t.windows):])
	return k, nil
}
