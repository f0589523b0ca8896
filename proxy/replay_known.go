package proxy

import (
	"slices"

	"github.com/weir-proxy/weir/proxy/key"
)

// needs are the places that a key has to be read from. What a copy has to equal is not
// among them, for it may be missing.
func needs(s *key.Spec) []key.Origin {
	if s == nil {
		return nil
	}
	var all []key.Origin
	if s.From.Source != "" {
		all = append(all, s.From)
	}
	for _, other := range append(slices.Clone(s.Join), s.Of, s.Fallback, s.InvalidFallback) {
		all = append(all, needs(other)...)
	}
	return all
}

// needs are the places that l has to be read from.
func (l *limit) needs() []key.Origin {
	all := append(needs(l.Key), needs(l.Distinct)...)
	if l.Cost != nil {
		all = append(all, l.Cost.From)
	}
	return all
}

// A replayRoute is a route and those of its copies that leave out what a log does not
// tell.
type replayRoute struct {
	*route
	needs  [][]key.Origin // of each of its limits
	looks  [][]key.Origin // of each of its lookups, those in the body last
	copies map[bitset]*route
}

func newReplayRoute(r *route) *replayRoute {
	made := &replayRoute{route: r, copies: map[bitset]*route{{}: r}}
	for _, l := range r.limits {
		made.needs = append(made.needs, l.needs())
	}
	for _, s := range slices.Concat(r.lists, r.bodyLists) {
		made.looks = append(made.looks, needs(s.key))
	}
	return made
}

// known is the route with those limits and lists alone of which the log tells the keys;
// unknown has those that are left out, the limits first. The usual case is found
// without allocating.
func (r *replayRoute) known(q *LoggedRequest, x *exchange) (known *route, unknown bitset) {
	for i, places := range r.needs {
		if !q.knowsAll(places, x) {
			unknown.set(i)
		}
	}
	for i, places := range r.looks {
		if !q.knowsAll(places, x) {
			unknown.set(len(r.needs) + i)
		}
	}
	if known = r.copies[unknown]; known == nil {
		known = r.without(unknown)
		r.copies[unknown] = known
	}
	return known, unknown
}

// knowsAll reports whether the log tells of all places.
func (q *LoggedRequest) knowsAll(places []key.Origin, x *exchange) bool {
	for _, o := range places {
		if !q.knows(o, x) {
			return false
		}
	}
	return true
}

// without is a copy of the route without some limits and lists.
func (r *replayRoute) without(unknown bitset) *route {
	made := *r.route
	made.limits, made.early, made.lists, made.bodyLists = nil, nil, nil, nil
	for i, l := range r.limits {
		if unknown.has(i) {
			continue
		}
		made.limits = append(made.limits, l)
		if slices.Contains(r.early, l) {
			made.early = append(made.early, l)
		}
	}
	for i, s := range r.lists {
		if !unknown.has(len(r.needs) + i) {
			made.lists = append(made.lists, s)
		}
	}
	for i, s := range r.bodyLists {
		if !unknown.has(len(r.needs) + len(r.lists) + i) {
			made.bodyLists = append(made.bodyLists, s)
		}
	}
	return &made
}

// A bitset is numbers from 0 to 255; what is beyond is not in it.
type bitset [4]uint64

func (b *bitset) set(i int) {
	if i/64 < len(b) {
		b[i/64] |= 1 << (i % 64)
	}
}

func (b *bitset) has(i int) bool { return i/64 < len(b) && b[i/64]>>(i%64)&1 == 1 }
