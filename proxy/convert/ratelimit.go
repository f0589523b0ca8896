package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/view"
)

// expectedRatelimit is what the file should be.
const expectedRatelimit = "expected a configuration of envoyproxy/ratelimit with domain and descriptors; of a " +
	"ConfigMap, the text in its data"

// A ratelimitDomain is a configuration of envoyproxy/ratelimit: a tree whose paths are descriptors.
type ratelimitDomain struct {
	*document
	name string
}

// A ratelimitRule is an entry of descriptors, with what may follow it.
type ratelimitRule struct {
	line     int
	key      string
	pattern  pattern
	hasValue bool // a rule without a value is the last that is asked
	shared   bool // all values that the pattern matches have one count
	limit    *ratelimitLimit
	children []*ratelimitRule
}

// convertRatelimit converts all domains of a file.
func convertRatelimit(d *document, data []byte) {
	documents := d.documents(data, expectedRatelimit)
	if d.fault != nil {
		return
	}
	d.note(0, "windows of ratelimit begin with the second, minute, hour or day of the clock, those of Weir's "+
		"fixed_window with the first request",
		"write algorithm: token_bucket for at most the rate in any window, or leave it")
	d.note(0, "ratelimit counts each descriptor of a call by itself, and refused calls too; a call that Weir refuses "+
		"uses up no limit", "")
	d.note(0, "ratelimit counts in the Redis of REDIS_URL",
		"write store: redis and redis: {addrs: [HOST:PORT]} for one count in all Weirs")
	d.sections.set("listen", `{http: none, decide: {grpc: "127.0.0.1:8081"}}`)
	taken := map[string]bool{}
	for _, o := range documents {
		r := &ratelimitDomain{document: d, name: o.get("domain").value()}
		switch {
		case r.name == "":
			d.wrong(o.line(), "there is no domain", expectedRatelimit)
		case taken[r.name]:
			d.wrong(o.get("domain").line(), "the domain "+r.name+" is there already",
				"expected each domain once")
		}
		taken[r.name] = true
		r.routes(&ratelimitRule{children: r.rules(o.get("descriptors"))})
		d.leaveUnused(o, ratelimitHint)
	}
	if len(d.entries["route"]) == 0 {
		d.wrong(documents[0].line(), "no descriptor has a rate_limit", expectedRatelimit)
	}
}

// rules reads the rules of a list of descriptors.
func (r *ratelimitDomain) rules(list node) (all []*ratelimitRule) {
	for _, at := range list.items() {
		value := at.get("value").value()
		rule := &ratelimitRule{line: at.line(), key: at.get("key").value(), pattern: cmp.Or(pattern(value), anything),
			hasValue: value != "", shared: at.get("share_threshold").text() == "true"}
		switch {
		case rule.key == "":
			r.wrong(at.line(), "a descriptor has no key", "expected key with the name of an entry")
		case slices.ContainsFunc(all, rule.equals):
			r.wrong(at.line(), "the descriptor "+rule.name()+" is there already",
				"expected each key and value once in a list")
		case rule.shared && !(rule.hasValue && rule.pattern.isOpen()):
			r.wrong(at.get("share_threshold").line(), "share_threshold is only for values that end with *",
				"expected value: PREFIX* beside it")
		}
		rule.limit, rule.children = r.limit(at), r.rules(at.get("descriptors"))
		if strings.Contains(strings.TrimSuffix(value, "*"), "*") {
			r.note(at.line(), "a * that is not at the end matches itself only, in "+rule.name(),
				"write a route for each value, or PREFIX* if that is enough")
		}
		all = append(all, rule)
	}
	return slices.DeleteFunc(slices.Clone(all), func(rule *ratelimitRule) bool { return r.isHidden(rule, all) })
}

// isHidden reports whether another rule of its list matches all that a rule matches, and is asked before it.
func (r *ratelimitDomain) isHidden(rule *ratelimitRule, all []*ratelimitRule) bool {
	if !rule.pattern.isOpen() {
		return false
	}
	for _, first := range all {
		if first == rule && rule.hasValue {
			return false
		}
		if first.hasValue && first.key == rule.key && first.pattern.includes(rule.pattern) {
			r.note(rule.line, rule.name()+" is not carried over: ratelimit never comes to it, because "+
				first.name()+" matches before", "")
			return true
		}
	}
	return false
}

// equals reports whether two rules of a list match the same entry by the same pattern.
func (r *ratelimitRule) equals(o *ratelimitRule) bool {
	return r.key == o.key && r.pattern == o.pattern && r.hasValue == o.hasValue
}

// name returns the entry of a rule as messages write it.
func (r *ratelimitRule) name() string {
	if !r.hasValue {
		return r.key
	}
	return r.key + ": " + string(r.pattern)
}

// ratelimitHint says what to do about a field that is not carried over.
func ratelimitHint(name string) string {
	switch name {
	case "detailed_metric", "value_to_metric":
		return "metrics of Weir have the limit and the route, and no values; see weir top for the keys"
	case "metadata":
		return "it is not sent to Envoy; use decision, limit, remaining and shadow, which Weir sends as dynamic " +
			"metadata"
	}
	return "see what each does, and write it by hand"
}

// A ratelimitLimit is a rate_limit of envoyproxy/ratelimit.
type ratelimitLimit struct {
	line   int
	name   string // "" for none
	count  int64
	window time.Duration
	shadow bool
	notes  notes
	made   mapping // the fields of routes that apply it; nil before there is one
}

// limit reads the limit of a rule; nil if it has none, or an unlimited one.
func (r *ratelimitDomain) limit(at node) *ratelimitLimit {
	from := at.get("rate_limit")
	if !from.isThere() || from.at.Tag == "!!null" || from.get("unlimited").text() == "true" {
		return nil
	}
	unit := from.get("unit")
	const day = 24 * time.Hour
	window := map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day,
		"week": 7 * day, "month": 30 * day, "year": 365 * day}[strings.ToLower(unit.text())]
	if window == 0 {
		r.wrong(from.line(), "the unit "+strconv.Quote(unit.text())+" is none",
			"expected second, minute, hour, day, week, month or year")
		return nil
	}
	l := &ratelimitLimit{line: at.line(), name: from.get("name").text(), window: window,
		count: r.number(from.get("requests_per_unit")), shadow: at.get("shadow_mode").text() == "true"}
	units := max(r.number(from.get("unit_multiplier")), 1)
	if l.shadow && l.count == 0 {
		return nil // refuses nobody
	}
	l.bound(units)
	if at.get("quota_mode").text() == "true" {
		l.notes.add(at.get("quota_mode").line(), "quota_mode refuses a call only if all its descriptors with quota_mode "+
			"are over their limits; Weir refuses it if one is",
			"leave it if Envoy sends one of them in a call, else write mode: shadow")
	}
	if replaced := from.get("replaces"); replaced.isThere() {
		replaced.useAll()
		l.notes.add(replaced.line(), "replaces is not carried over: a call that has descriptors of both is counted by both",
			"have Envoy send only one of these descriptors")
	}
	return l
}

// bound sets the window, and keeps count and window in the range that rates have.
func (l *ratelimitLimit) bound(units int64) {
	if l.count > limiter.MaxCount {
		l.notes.add(l.line, strconv.FormatInt(l.count, 10)+" requests are more than a rate has",
			strconv.Itoa(limiter.MaxCount)+" is written")
		l.count = limiter.MaxCount
	}
	if most := int64(limiter.MaxWindow / l.window); units > most {
		l.notes.add(l.line, "the window is longer than a year", limiter.WindowName(time.Duration(most)*l.window)+" is written")
		units = most
	}
	l.window *= time.Duration(units)
}

// apply returns the fields of a route that applies the limit at the end of a way. All such routes have one count.
func (r *ratelimitDomain) apply(l *ratelimitLimit, name string, way []*ratelimitRule) mapping {
	switch {
	case l.made != nil:
	case l.count == 0:
		l.made = mapping{{"lists", texts([]string{r.refuse(way[len(way)-1])})}}
	default:
		fields := mapping{{"key", r.key(way)}, {"rate", strconv.FormatInt(l.count, 10) + "/" + limiter.WindowName(l.window)},
			{"algorithm", "fixed_window"}}
		if l.shadow {
			fields.set("mode", "shadow")
		}
		made := r.add("limit", name, fields)
		made.notes = l.notes
		l.made = mapping{{"limits", texts([]string{made.name})}}
	}
	return l.made
}

// refuse returns the name of a list that refuses all that a rule matches.
func (r *ratelimitDomain) refuse(rule *ratelimitRule) string {
	value := string(rule.pattern)
	fields := mapping{{"key", entryKey(rule).flow()}, {"values", texts([]string{value})}, {"action", "deny"}}
	if rule.pattern.isOpen() || strings.TrimSpace(value) != value || value[0] == '#' {
		fields[1].value, fields[2].value = "[]", "only"
	}
	return r.share("list", rule.key, fields).name
}

// entryKey returns the key that has the entry of a rule.
func entryKey(rule *ratelimitRule) mapping {
	return mapping{{"from", text("descriptor:" + rule.key)}, {"on_missing", "shared"}}
}

// key returns the key by which a limit counts: the entries on the way to it whose values are open.
func (r *ratelimitDomain) key(way []*ratelimitRule) string {
	var parts []string
	for _, rule := range way {
		if rule.pattern.isOpen() && !rule.shared {
			parts = append(parts, r.share("key", rule.key, entryKey(rule)).name)
		}
	}
	return r.joinKeys(strings.Join(parts, "-"), parts)
}

// A pattern matches values as a route does: the exact value, a prefix that ends with *, or
// anything. Of two patterns one includes the other, or no value matches both.
type pattern string

const anything pattern = "*"

func (p pattern) isOpen() bool { return strings.HasSuffix(string(p), "*") }

// weight is larger for a longer prefix, and for an exact value larger than for any prefixes.
func (p pattern) weight() int64 {
	if p.isOpen() {
		return int64(len(p))
	}
	return 1 << 40
}

// includes reports whether p matches all that o matches.
func (p pattern) includes(o pattern) bool {
	prefix, open := strings.CutSuffix(string(p), "*")
	return p == o || open && strings.HasPrefix(strings.TrimSuffix(string(o), "*"), prefix)
}

// A ratelimitMatch has a pattern for each entry of descriptors.
type ratelimitMatch []pattern

func (m ratelimitMatch) includes(o ratelimitMatch) bool {
	return slices.EqualFunc(m, o, pattern.includes)
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
	var all, first int64
	for i, p := range m {
		more := o[i].weight() - p.weight()
		all, first = all+more, cmp.Or(first, more)
	}
	return cmp.Compare(cmp.Or(all, first), 0)
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
		keys := view.Each(way, func(rule *ratelimitRule) string { return rule.key })
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
