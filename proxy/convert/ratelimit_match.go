package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A pattern matches values as a route does: the exact value, a prefix that ends with *, or
// anything. Of two patterns one includes the other, or no value matches both.
type pattern string

const anything pattern = "*"

func (p pattern) isOpen() bool { return strings.HasSuffix(string(p), "*") }

// specific returns 1 for an exact value, otherwise the length of the prefix.
func (p pattern) specific() (exact, prefix int) {
	if p.isOpen() {
		return 0, len(p)
	}
	return 1, 0
}

// includes reports whether p matches all that o matches.
func (p pattern) includes(o pattern) bool {
	prefix, open := strings.CutSuffix(string(p), "*")
	return p == o || open && strings.HasPrefix(strings.TrimSuffix(string(o), "*"), prefix)
}

// A ratelimitMatch has a pattern for each entry of descriptors.
type ratelimitMatch []pattern

func (m ratelimitMatch) includes(o ratelimitMatch) bool {
	for i, p := range m {
		if !p.includes(o[i]) {
			return false
		}
	}
	return true
}

// intersect returns what matches the descriptors that both match.
func (m ratelimitMatch) intersect(o ratelimitMatch) (both ratelimitMatch, some bool) {
	for i, p := range m {
		switch {
		case p.includes(o[i]):
			both = append(both, o[i])
		case o[i].includes(p):
			both = append(both, p)
		default:
			return nil, false
		}
	}
	return both, true
}

// compare is negative if Weir takes m rather than o, where both match: the one with more exact values, then
// the one with longer prefixes. The first entry decides between equal ones, so the routes
// are written in this order.
func (m ratelimitMatch) compare(o ratelimitMatch) int {
	exact, prefixes, first := 0, 0, 0
	for i, p := range m {
		ofM, longM := p.specific()
		ofO, longO := o[i].specific()
		exact += ofO - ofM
		prefixes += longO - longM
		first = cmp.Or(first, ofO-ofM, longO-longM)
	}
	return cmp.Or(exact, prefixes, first)
}

// maxRatelimitMatches bounds the routes for descriptors with the same entries.
const maxRatelimitMatches = 10_000

// routes adds the routes of a domain. A rate limit service asks one rule after the other, the exact value
// first, and never turns back; Weir takes the most specific of all routes. So there is a route for whatever
// several rules could match, unless Weir finds the same limit without it.
func (r *ratelimitDomain) routes(root *ratelimitRule) {
	seen := map[string][]string{}
	for _, way := range r.descriptors(root, nil) {
		if r.fault != nil {
			return
		}
		var keys []string
		for _, rule := range way {
			keys = append(keys, rule.key)
		}
		set := strings.Join(slices.Sorted(slices.Values(keys)), "\x00")
		if first, known := seen[set]; known {
			if !slices.Equal(first, keys) {
				r.note(way[len(way)-1].line, "descriptors with "+strings.Join(keys, ", ")+
					" are not carried over: Weir does not see in which order entries are",
					"rename an entry with descriptor_key in Envoy")
			}
			continue
		}
		seen[set] = keys
		r.addRoutes(root, keys, r.matches(root, keys))
	}
}

// descriptors returns the ways to all rules that have a limit.
func (r *ratelimitDomain) descriptors(rule *ratelimitRule, way []*ratelimitRule) (all [][]*ratelimitRule) {
	for _, child := range rule.children {
		if slices.ContainsFunc(way, func(o *ratelimitRule) bool { return o.key == child.key }) {
			r.note(child.line, "a descriptor with two entries "+child.key+" is not carried over, nor what is below it",
				"rename one of them with descriptor_key in Envoy")
			continue
		}
		longer := append(slices.Clone(way), child)
		if child.limit != nil {
			all = append(all, longer)
		}
		all = append(all, r.descriptors(child, longer)...)
	}
	return all
}

// matches returns what the rules match of descriptors with these keys: each way through the tree, where
// what follows may be anything, and what two of them have in common.
func (r *ratelimitDomain) matches(root *ratelimitRule, keys []string) (all []ratelimitMatch) {
	seen := map[string]bool{}
	add := func(m ratelimitMatch) {
		if id := fmt.Sprintf("%q", m); !seen[id] {
			seen[id] = true
			all = append(all, m)
		}
	}
	var walk func(rule *ratelimitRule, way ratelimitMatch)
	walk = func(rule *ratelimitRule, way ratelimitMatch) {
		add(append(slices.Clone(way), slices.Repeat(ratelimitMatch{anything}, len(keys)-len(way))...))
		for _, child := range rule.children {
			if len(way) < len(keys) && child.key == keys[len(way)] {
				walk(child, append(slices.Clone(way), child.pattern))
			}
		}
	}
	walk(root, nil)
	for i := 0; i < len(all); i++ {
		for _, other := range all[:i] {
			if both, some := all[i].intersect(other); some {
				add(both)
			}
		}
		if len(all) > maxRatelimitMatches {
			r.wrong(0, "more than 10000 routes are needed for descriptors with "+strings.Join(keys, ", "),
				"expected fewer values in several entries")
			return nil
		}
	}
	slices.SortStableFunc(all, ratelimitMatch.compare)
	return all
}

// A ratelimitRoute is a match, and the rules that a descriptor goes through.
type ratelimitRoute struct {
	match ratelimitMatch
	way   []*ratelimitRule
	limit *ratelimitLimit // nil for none
}

// addRoutes adds those routes without which Weir would find another limit. The matches are in the order of
// compare.
func (r *ratelimitDomain) addRoutes(root *ratelimitRule, keys []string, all []ratelimitMatch) {
	var needed []ratelimitRoute // the least specific first
	for _, m := range slices.Backward(all) {
		route := ratelimitRoute{match: m, way: root.find(keys, m)}
		if len(route.way) == len(keys) {
			route.limit = route.way[len(keys)-1].limit
		}
		var without *ratelimitLimit
		for _, other := range slices.Backward(needed) {
			if other.match.includes(m) {
				without = other.limit
				break
			}
		}
		if route.limit != without {
			needed = append(needed, route)
		}
	}
	for _, route := range slices.Backward(needed) {
		r.addRatelimitRoute(keys, route)
	}
}

// find returns the rules that a descriptor goes through.
func (r *ratelimitRule) find(keys []string, m ratelimitMatch) (way []*ratelimitRule) {
	for i, p := range m {
		if r = r.next(keys[i], p); r == nil {
			break
		}
		way = append(way, r)
	}
	return way
}

// next returns the rule for an entry: that with its value, else the first one with an open value that
// matches, else that without a value.
func (r *ratelimitRule) next(key string, p pattern) (found *ratelimitRule) {
	for _, child := range r.children {
		switch {
		case child.key != key:
		case child.pattern == p && !p.isOpen():
			return child
		case child.hasValue && child.pattern.includes(p) && (found == nil || !found.hasValue):
			found = child
		case !child.hasValue && found == nil:
			found = child
		}
	}
	return found
}

// addRatelimitRoute adds a route.
func (r *ratelimitDomain) addRatelimitRoute(keys []string, route ratelimitRoute) {
	var entries mapping
	for i, p := range route.match {
		entries.set(text(keys[i]), text(string(p)))
	}
	fields := mapping{{"match", mapping{{"domain", text(r.name)}, {"descriptor", entries.flow()}}.flow()}}
	name := wayName(route.way)
	if route.limit != nil {
		name = cmp.Or(route.limit.name, name)
		fields = append(fields, r.apply(route.limit, name, route.way)...)
	}
	made := r.add("route", name, fields)
	if len(route.way) < len(keys) {
		last := route.way[len(route.way)-1]
		made.notes.add(last.line, "ratelimit looks no further than "+last.name()+", where it finds no limit", "")
	}
}

// wayName returns a name for the descriptors that go a way.
func wayName(way []*ratelimitRule) string {
	var words []string
	for _, rule := range way {
		words = append(words, rule.key)
		if value := strings.TrimSuffix(string(rule.pattern), "*"); value != "" {
			words = append(words, value)
		}
	}
	return strings.Join(words, "-")
}
