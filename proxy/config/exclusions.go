package config

import (
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// A finding is what may be wrong with the field at a pointer, and whether it is.
type finding struct {
	wrong         bool
	at            any
	what, instead string
}

// refuse reports everything that is wrong.
func (l *loader) refuse(all []finding) { each(l.Wrong, all) }

// refuseFirst reports the first thing that is wrong, from which others may follow, and whether there is one.
func (l *loader) refuseFirst(all []finding) bool {
	i := slices.IndexFunc(all, func(f finding) bool { return f.wrong })
	if i >= 0 {
		l.refuse(all[i : i+1])
	}
	return i >= 0
}

// warn warns of everything that is probably wrong.
func (l *loader) warn(all []finding) { each(l.Warn, all) }

// each reports everything that is wrong.
func each(report func(pointer any, what, instead string), all []finding) {
	for _, f := range all {
		if f.wrong {
			report(f.at, f.what, f.instead)
		}
	}
}

// A rule says which fields of a form another field excludes or needs.
type rule struct {
	field    string
	excludes string // fields that are reported beside it
	needs    string // a field without which it is reported; empty for none
	what     string // is wrong; NAME stands for the excluded field
	instead  string
}

// combine reports the given fields of f, a pointer to a form, that exclude each other or lack another.
func (l *loader) combine(f any, rules []rule) {
	for _, r := range rules {
		at := form.Field(f, r.field)
		if !l.Given(at) {
			continue
		}
		for name := range strings.FieldsSeq(r.excludes) {
			if other := form.Field(f, name); l.Given(other) {
				l.Wrong(other, strings.ReplaceAll(r.what, "NAME", name), r.instead)
			}
		}
		if r.needs != "" && !l.Given(form.Field(f, r.needs)) {
			l.Wrong(at, r.what, r.instead)
		}
	}
}

// limitRules returns the rules of the fields of a limit.
func limitRules() []rule {
	const separate = "write a separate limit for it"
	return []rule{
		{"budget", "rate rates concurrent distinct cooldown burst redisson_name redisson_version", "", "a budget cannot be combined with NAME", separate},
		{"budget", "return_on", "", "a budget is spent when the message is sent: a used code returns no money", "leave it out, or write a separate limit for it"},
		{"concurrent", "rate rates distinct cooldown overrides plans plan burst count penalty", "", "concurrent cannot be combined with NAME", separate},
		{"concurrent", "wait", "", "it is unknown when requests in progress will end", "write max_connections and queue for the upstream, or leave wait out"},
		{"cooldown", "rate rates distinct overrides plans plan burst cost redisson_name redisson_version", "", "cooldown cannot be combined with NAME", separate},
		{"distinct", "cost burst redisson_name redisson_version", "", "distinct cannot be combined with NAME", separate},
		{"conversion", "budget concurrent distinct cooldown burst redisson_name redisson_version", "", "conversion cannot be combined with NAME", separate},
		{"step_up", "concurrent budget penalty wait redisson_name", "", "step_up cannot be combined with NAME", separate},
		{"return_on", "concurrent distinct cooldown redisson_name redisson_version", "", "return_on cannot be combined with NAME", separate},
		{"rate_from", "concurrent distinct cooldown budget overrides plans burst penalty return_on redisson_name", "", "rate_from cannot be combined with NAME", separate},

		{"price", "", "budget", "there is no budget", "write budget: beside it, for example [400/1d]"},
		{"reset_on", "", "cooldown", "there is no cooldown to reset", "write cooldown: in place of a rate, or leave reset_on out"},
		{"conversion", "", "return_on", "without return_on no request is confirmed", "write return_on: {route: NAME, key: KEY} beside it"},
		{"cost", "", "max_cost", "has no bound: one request could take all", "write max_cost: beside it, for example 10"},
		{"max_cost", "", "cost", "there is no cost", "write cost: with header:NAME or query:NAME, or leave max_cost out"},
		{"max_waiting", "", "wait", "max_waiting needs wait", "write wait: beside it, for example 500ms, or leave max_waiting out"},
		{"redisson_version", "", "redisson_name", "no limiter is shared with Redisson", "write redisson_name, or leave redisson_version out"},
	}
}

// matchRules returns the rules of the fields of a match: a descriptor of Envoy has nothing of a request.
func matchRules() []rule {
	return []rule{
		{"domain", "path methods scheme host headers query", "", "a descriptor has no NAME", "leave it out, or write another route for requests"},
		{"descriptor", "", "domain", "there is no domain", "write domain: beside it, with that of Envoy's rate limit filter"},
	}
}

// descriptorRules returns the rules of the fields of a route whose match has a domain.
func descriptorRules() []rule {
	return []rule{
		{"match", "upstream redirect respond rewrite body idempotency new_keys", "", "a route for descriptors has no NAME", "leave it out: Envoy forwards the request"},
	}
}

// ownAlgorithm reports an algorithm beside a field that is one itself.
func (l *limits) ownAlgorithm(f *limitForm) {
	if f.Algorithm == limiter.TokenBucket.String() || f.Algorithm == "" {
		return
	}
	for _, name := range []string{"budget", "concurrent", "cooldown", "distinct", "conversion"} {
		if l.Given(form.Field(f, name)) {
			l.Wrong(&f.Algorithm, strings.Replace(name, "budget", "a budget", 1)+" is a separate algorithm", "leave algorithm out")
			return
		}
	}
}
