package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// entries reads the descriptor of a match; nil if it matches requests.
func (r *routes) entries(f *matchForm) map[string]string {
	if f.Domain == "" {
		if r.Given(&f.Descriptor) {
			r.Wrong(&f.Descriptor, "there is no domain", "write domain: beside it, with that of Envoy's rate limit filter")
		}
		return nil
	}
	if len(f.Descriptor) == 0 {
		r.Wrong(f, "has no descriptor", `write descriptor: {ENTRY: VALUE, ENTRY: "*"} with all entries that Envoy sends`)
	}
	for _, other := range []struct {
		name    string
		pointer any
	}{{"path", &f.Path}, {"methods", &f.Methods}, {"scheme", &f.Scheme}, {"host", &f.Host}, {"headers", &f.Headers}, {"query", &f.Query}} {
		if r.Given(other.pointer) {
			r.Wrong(other.pointer, "a descriptor has no "+other.name, "leave it out, or write another route for requests")
		}
	}
	made := map[string]string{}
	for _, name := range form.SortedKeys(f.Descriptor) {
		if name == "" {
			r.WrongName(f.Descriptor[name], "an entry has no name", `write ENTRY: VALUE, ENTRY: PREFIX* or ENTRY: "*"`)
		}
		made[name] = *f.Descriptor[name]
	}
	return made
}

// descriptor checks that a route for descriptors uses nothing that only requests have, and a
// route for requests no descriptor.
func (r *routes) descriptor(f *routeForm, made *Route) {
	keys := map[*key.Spec]any{}
	for _, l := range made.Limits {
		at := f.limitNamed(l.Name)
		for read := range l.Reads() {
			if read.Purpose != ForCost && read.Purpose != ForStepUp {
				keys[read.Key] = at
			}
		}
		if made.Match.Domain != "" && l.Cost != nil {
			r.Wrong(at, "the cost of a descriptor is hits_addend", "leave cost out")
		}
		if made.Match.Domain == "" && l.RateFromDescriptor {
			r.Wrong(at, "requests have no limit for rate_from", "leave rate_from out, or write match: {domain: NAME, descriptor: {ENTRY: VALUE}}")
		}
		if made.Match.Domain != "" && l.StepUp != nil {
			r.Wrong(at, "a descriptor has no token for step_up", "leave step_up out")
		}
	}
	for _, l := range made.Lists {
		keys[l.Key] = f
	}
	for _, s := range slices.SortedFunc(maps.Keys(keys), func(a, b *key.Spec) int { return strings.Compare(a.Name, b.Name) }) {
		for _, o := range s.Origins() {
			r.described(keys[s], s, o, &made.Match)
		}
	}
	if made.Match.Domain == "" {
		return
	}
	for _, other := range []struct {
		name    string
		pointer any
	}{
		{"upstream", &f.Upstream}, {"redirect", &f.Redirect}, {"respond", &f.Respond}, {"rewrite", &f.Rewrite}, {"body", &f.Body},
		{"idempotency", &f.Idempotency}, {"new_keys", &f.NewKeys},
	} {
		if r.Given(other.pointer) {
			r.Wrong(other.pointer, "a route for descriptors has no "+other.name, "leave it out: Envoy forwards the request")
		}
	}
	if r.served.Decide == nil {
		r.Warn(f, "nobody asks about descriptors: there is no listen.decide.grpc", `write listen: {decide: {grpc: "127.0.0.1:8081"}}`)
	}
}

// described checks that what a route matches has what a key is read from.
func (r *routes) described(at any, s *key.Spec, o key.Origin, m *Match) {
	isEntry := o.Source.IsEntry()
	_, has := m.Descriptor[o.Name]
	switch {
	case m.Domain == "" && isEntry:
		r.Wrong(at, "the key "+s.Name+" is read from a descriptor, which requests do not have", "write match: {domain: NAME, descriptor: {"+o.Name+`: "*"}}`)
	case m.Domain != "" && isEntry && !has:
		r.Wrong(at, "the key "+s.Name+" is read from "+o.String()+", but the route's descriptor has no "+o.Name, "write "+o.Name+`: "*" in match.descriptor`)
	case m.Domain != "" && !isEntry && !o.Source.IsConstant():
		r.Wrong(at, "the key "+s.Name+" is read from "+o.String()+", which a descriptor does not have", "read it from descriptor:ENTRY, and let Envoy send it as an entry")
	}
}

// rateFrom lets a descriptor replace the rate of a limit. What belongs to the rate cannot be given beside it.
func (l *limits) rateFrom(f *limitForm, limit *Limit) {
	if !l.Given(&f.RateFrom) {
		return
	}
	limit.RateFromDescriptor = true
	l.apart(f, "rate_from", "concurrent", "distinct", "cooldown", "budget", "overrides", "plans", "burst", "penalty", "return_on", "redisson_name")
	if len(limit.Rates) > 1 {
		l.Wrong(&f.RateFrom, "the one rate of a descriptor would replace "+strconv.Itoa(len(limit.Rates))+" rates", "write one rate, and the others in limits of their own")
	}
}
