package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// Subject returns the key under whose values permits of l are noted; nil if they are not.
func (l *Limit) Subject() *key.Spec {
	if l.Return == nil {
		return nil
	}
	return l.Return.Subject
}

// returnOn compiles return_on; others resolves the route.
func (l *limits) returnOn(f, limit *Limit) {
	if f.Return == nil {
		return
	}
	if limit.Scope == limiter.PerClient {
		l.Wrong(&f.ScopeForm, "return_on needs counts of all nodes together: another node may see the response", "leave scope out")
	}
	limit.Return = &Return{Route: f.Return.Route, Status: f.Return.Status.orSuccess(), Subject: l.keys.use(f.Return.Of)}
	l.parameters(f.Return.Of, limit.Return.Subject)
}

// An effect is how a problem names what responses of another route do.
type effect struct{ own, get, whose string }

// others resolves the routes whose responses reset cooldowns or return permits. Such a route must read
// the key that says whose.
func (r *routes) others(made []*Route) {
	r.byName = view.By(made, func(route *Route) string { return route.Name })
	for _, l := range r.compiled {
		if to := l.Reset; to != nil && l.Algorithm.HasSteps() && to.Route != "" && l.Key != nil {
			to.Key = r.keyThere(&l.form.Reset.Route, l, l.Key, effect{"the cooldown would be reset", "resets the cooldown", "whose cooldown to reset"})
		}
		if to := l.Return; to != nil && to.Route != "" && to.Subject != nil {
			to.Key = r.keyThere(&l.form.Return.Route, l, to.Subject, effect{"the permits would be returned", "returns permits", "whose permits to return"})
		}
	}
}

// other returns the route that pointer names, whose responses have effect e on the limit of for the values of spec. It
// reports a problem and returns nil if there is none.
func (r *routes) other(pointer *string, of *Limit, spec *key.Spec, e effect) *Route {
	other := r.byName[*pointer]
	switch {
	case other == nil && r.byName[""] != nil: // a name that is reported already
	case other == nil:
		r.Wrong(pointer, "there is no route "+form.Quote(*pointer), r.suggest(*pointer, of, spec))
	case r.isOf(of, other.Name):
		r.Wrong(pointer, e.own+" by each allowed request", "name another route: "+r.suggest("", of, spec))
		return nil
	case len(other.Match.Methods) == 0:
		r.Warn(pointer, "route "+other.Name+" has no methods: a GET that its upstream answers with such a status "+e.get+", too", "give it the method that verifies, methods: [POST] for example")
	}
	return other
}

// isOf reports whether the route called name has the limit.
func (r *routes) isOf(l *Limit, name string) bool {
	return name == l.Route || l.IsCommon() && slices.Contains(r.naming[l.Name], name)
}

// suggest returns what to write instead of name, which is not another route than those of the limit: the nearest one,
// those that read spec, or a new one.
func (r *routes) suggest(name string, of *Limit, spec *key.Spec) string {
	var others, reading []string
	for _, other := range form.SortedKeys(r.byName) {
		if !r.isOf(of, other) {
			others = append(others, other)
			if r.byName[other].reads(spec) != nil {
				reading = append(reading, other)
			}
		}
	}
	route := "write a route for it: {name: " + cmp.Or(name, "NAME") + ", match: {methods: [POST], path: PATH}, upstream: UPSTREAM, limits: [{key: " + spec.Name + ", rate: 5/10m}]}"
	return cmp.Or(form.Near(name, others), form.Suggest(name, reading), route)
}

// keyThere checks that the route that pointer names can have effect e on the limit of, and finds spec there; nil after a
// problem.
func (r *routes) keyThere(pointer *string, of *Limit, spec *key.Spec, e effect) *key.Spec {
	other := r.other(pointer, of, spec, e)
	if other == nil || !r.Valid(other.form) {
		return nil
	}
	found := other.reads(spec)
	r.refuseFirst([]finding{
		{found == nil && of.Return != nil && other.readsOtherwise(spec), pointer,
			"route " + other.Name + " reads the key " + spec.Name + " in another way, so that one subject may have two values", "define the key under keys, and write its name on both routes"},
		{found == nil, pointer, "route " + other.Name + " does not look at the key " + spec.Name + ", so it is unknown " + e.whose, "give it a limit or a list on that key"},
	})
	return found
}

// reads returns the key of a limit or list of the r that equals spec, or nil.
func (r *Route) reads(spec *key.Spec) *key.Spec {
	for _, s := range r.keysRead() {
		if s == spec || reflect.DeepEqual(s, spec) {
			return s
		}
	}
	return nil
}

// readsOtherwise reports whether a limit or list of r reads what spec reads, but not as spec does.
func (r *Route) readsOtherwise(spec *key.Spec) bool {
	return slices.ContainsFunc(r.keysRead(), func(s *key.Spec) bool { return s.From == spec.From && s.From.Source != 0 })
}

// keysRead returns the keys of the limits and lists of r.
func (r *Route) keysRead() []*key.Spec {
	others := func(read Read) bool { return read.Mode == Off || read.Purpose != ForKey && read.Purpose != ForList }
	return view.Each(slices.DeleteFunc(r.Reads(), others), func(read Read) *key.Spec { return read.Key })
}

// Notes returns remarks for operators about a valid configuration: guarantees that are
// weaker than they could be.
func (c *Config) Notes() []string {
	var notes []string
	switch {
	case c.Privacy.HashSecret != "":
	case c.Store == StoreRedis:
		notes = append(notes, "anyone who can read Redis can recover keys such as phone numbers by brute force; set privacy.hash_secret")
	case slices.ContainsFunc(slices.Collect(maps.Values(c.Keys)), func(s *key.Spec) bool { return s.Sensitive }):
		notes = append(notes, "without privacy.hash_secret, key hashes in the log change at every restart")
	}
	about := func(names []string, note string) view.Fact { // NAMES stands for them
		return view.Fact{Holds: len(names) > 0, Text: strings.ReplaceAll(note, "NAMES", strings.Join(names, ", "))}
	}
	return append(notes, view.Holding(
		about(c.refusesForms(), "a form in the body is refused with 400 at NAMES: keys, costs or matches are read from the query, and some servers find the same parameters in a form; write must_equal: form:NAME for a key, or form_beside_query: ignore for a route whose upstream reads the query alone"),
		about(c.endWithKeys(), "a dot in the key at the end of the path is refused with 400 at NAMES: some servers, such as Rails, read 7.json as 7; write a regexp, {"+"id:[^/]+} for example, if the upstream reads the whole text"),
		about(c.keysThat(dependOnPlus), "with default_region the same digits can be two phone numbers, one with and one without a plus, and an upstream that drops the plus takes one for the other; write set_header for NAMES, and read the number from that field"),
		about(c.keysThat(areOnlyLower), "with lower alone, full-width letters, the two forms of é and ſ are other keys than b, é and s, although many databases find the same record by them; write normalize: [trim, nfkc, fold] for NAMES, unless the upstream compares bytes"),
	)...)
}

// LastKey returns the last parameter of the path of r, if a list or a limit in enforce mode
// reads it; otherwise "".
func (r *Route) LastKey() string {
	if len(r.Match.Params) == 0 {
		return ""
	}
	last := r.Match.Params[len(r.Match.Params)-1]
	for _, read := range r.Reads() {
		if read.Mode == Enforce && read.Purpose != ForBalance && slices.Contains(read.Key.Origins(), key.PathParameter(last)) {
			return last
		}
	}
	return ""
}

// endWithKeys returns the routes at which a dot in a key at the end of the path is refused.
func (c *Config) endWithKeys() (names []string) {
	for _, r := range c.Routes {
		if last := r.LastKey(); last != "" && strings.HasSuffix(strings.TrimSuffix(r.Match.Path, "/"), "/{"+last+"}") {
			names = append(names, r.Name)
		}
	}
	return names
}

// dependOnPlus reports whether an upstream may take numbers under s for others.
func dependOnPlus(s *key.Spec) bool {
	return s.Phone != nil && s.Phone.HasRegion() && s.SetHeader == ""
}

// areOnlyLower reports whether s leaves spellings apart that databases do not.
func areOnlyLower(s *key.Spec) bool {
	has := func(step key.Step) bool { return slices.Contains(s.Normalize, step) }
	return has(key.Lower) && !has(key.NFKC) && !has(key.Fold) && s.From.Source.IsSpelled() && !s.From.Source.IsField()
}

// keysThat returns the names of the keys that are so, and of the limits that have such a key of their own.
func (c *Config) keysThat(are func(*key.Spec) bool) (names []string) {
	names = slices.DeleteFunc(form.SortedKeys(c.Keys), func(name string) bool { return !are(c.Keys[name]) })
	for _, l := range c.Limits() {
		for _, read := range l.Reads() {
			if are(read.Key) && c.Keys[read.Key.Name] != read.Key && !slices.Contains(names, l.FullName()) {
				names = append(names, l.FullName())
			}
		}
	}
	return names
}

// A Fault is a kind of failure of an upstream.
type Fault string

// The faults.
const (
	FaultTimeout     Fault = "timeout"      // no response or no connection in time
	FaultConnect     Fault = "connect"      // the connection failed
	FaultReset       Fault = "reset"        // it closed the connection before the response
	FaultCut         Fault = "cut"          // the response was incomplete
	FaultBadResponse Fault = "bad_response" // the response was not valid HTTP
)

// refund compiles the Refund of a route.
func (r *routes) refund(f *Refund) Refund {
	if !r.Given(&f.Status) && !r.Given(&f.Errors) && !r.Given(&f.Header) && r.Valid(f) {
		r.Wrong(f, "says nothing", "write status, errors or header below it")
	}
	return Refund{f.Status, f.Errors, r.header(&f.Header, "X-Refund")}
}
