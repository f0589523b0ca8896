package proxy

import (
	"slices"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// origins returns the origins that are needed to evaluate l, but for that of a plan; see looksPlansUp.
func (l *limit) origins() (all []key.Origin) {
	for read := range l.Reads() {
		if read.Purpose != config.ForPlan {
			all = append(all, read.Key.Required()...)
		}
	}
	return all
}

// A replayRoute is a route with its copies that skip limits and lists whose keys are not in the
// log.
type replayRoute struct {
	*route
	limitOrigins [][]key.Origin // origins by limit
	listOrigins  [][]key.Origin // origins by list lookup; those in the body are last
	copies       map[bitset]*route
	overridden   overriddenKeys
}

func newReplayRoute(r *route, privacy *config.Privacy) *replayRoute {
	made := &replayRoute{route: r, copies: map[bitset]*route{{}: r}, overridden: newOverriddenKeys(r, privacy)}
	for _, l := range r.limits {
		made.limitOrigins = append(made.limitOrigins, l.origins())
	}
	for _, s := range slices.Concat(r.lists, r.bodyLists) {
		made.listOrigins = append(made.listOrigins, s.key.Required())
	}
	return made
}

// withKnownKeys returns the route with only those limits and lists whose keys are in the log. unknown has
// those that are skipped, limits first. The usual case does not allocate. A key is taken as its line
// identifies it unless the line has the values of all.
func (r *replayRoute) withKnownKeys(q *LoggedRequest, x *exchange) (known *route, unknown bitset) {
	for i, places := range r.limitOrigins {
		if !q.knowsAll(places, x) || !r.route.limits[i].looksPlansUp() {
			unknown.set(i)
		}
	}
	if unknown != (bitset{}) && q.Keys != "" {
		x.extracted.logged = lineKeys{loggedKeys(q.Keys), r.overridden}
		unknown = bitset{}
		for i, l := range r.route.limits {
			if !x.extracted.logged.line.hasNone() && !q.knowsLimit(l, x) {
				unknown.set(i)
			}
		}
	}
	for i, places := range r.listOrigins {
		if !q.knowsAll(places, x) {
			unknown.set(len(r.limitOrigins) + i)
		}
	}
	if known = r.copies[unknown]; known == nil {
		known = r.copyWithout(unknown)
		r.copies[unknown] = known
	}
	return known, unknown
}

// knowsAll reports whether the log has the values at all places.
func (l *LoggedRequest) knowsAll(places []key.Origin, x *exchange) bool {
	for _, o := range places {
		if !l.knows(o, x) {
			return false
		}
	}
	return true
}

// copyWithout returns a copy of the route without some limits and lists.
func (r *replayRoute) copyWithout(unknown bitset) *route {
	made := *r.route
	made.limits = without(r.limits, 0, unknown)
	made.early = slices.DeleteFunc(slices.Clone(r.early), func(l *limit) bool { return !slices.Contains(made.limits, l) })
	made.lists = without(r.lists, len(r.limitOrigins), unknown)
	made.bodyLists = without(r.bodyLists, len(r.limitOrigins)+len(r.lists), unknown)
	return &made
}

// without returns those of all that unknown does not have, whose numbers begin with first.
func without[T any](all []T, first int, unknown bitset) (kept []T) {
	for i, one := range all {
		if !unknown.has(first + i) {
			kept = append(kept, one)
		}
	}
	return kept
}

// A bitset is a set of numbers from 0 to 255. Larger numbers are ignored.
type bitset [4]uint64

func (b *bitset) set(i int) {
	if i/64 < len(b) {
		b[i/64] |= 1 << (i % 64)
	}
}

func (b *bitset) has(i int) bool { return i/64 < len(b) && b[i/64]>>(i%64)&1 == 1 }
