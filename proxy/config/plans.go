package config

import (
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// A PlanSource is where the name of a key's plan is read from: at most one of its fields is set, and none if no key has a plan.
type PlanSource struct {
	Name *key.Spec // a claim of a token, or a header field, which only trusted proxies may set
	List *key.List // the names by key
}

// A planList names a list of plans, as it is read for keys of a spec.
type planList struct {
	spec *key.Spec
	file string // relative to dir
	dir  string
}

const (
	planOrigins = "write jwt:CLAIM, {list: FILE}, or header:NAME with client_ip.trusted_proxies"
	chosenPlan  = "a client could choose its plan by it"
)

// plans compiles the rates of plans, and where the name of a plan is read from.
func (l *limits) plans(f, limit *Limit) {
	if len(f.PlanForms) == 0 {
		if l.Given(&f.PlanForm) {
			l.Wrong(&f.PlanForm, "there are no plans", "write plans: beside it, for example {free: 60/1m, pro: [600/1m, 20000/1d]}")
		}
		return
	}
	limit.Plans = map[string][]limiter.Rate{}
	for _, name := range form.SortedKeys(f.PlanForms) {
		texts := f.PlanForms[name]
		switch {
		case !l.checkName(texts, name, "a plan"): // reported
		case len(*texts) == 1 && (*texts)[0] == none:
			limit.Plans[name] = nil
		default:
			limit.Plans[name] = l.override(texts, limit)
		}
	}
	limit.Plan = l.planSource(f, limit)
	l.withoutPlan(f, limit)
}

// planSource compiles where the name of a plan is read from. A client must not be able to choose it.
func (l *limits) planSource(f, limit *Limit) PlanSource {
	switch {
	case f.PlanForm == nil:
		return PlanSource{}
	case f.PlanForm.List != "":
		return PlanSource{List: l.planList(f, limit)}
	case f.PlanForm.Text == "":
		return PlanSource{} // none, or already reported
	}
	text := &f.PlanForm.Text
	from, err := key.ParseOrigin(*text)
	signed, field := from.Source.IsSigned(), from.Source.IsField()
	if l.refuseFirst([]finding{
		{err != nil, text, form.Quote(*text) + " is no place of a plan", planOrigins},
		{!signed && !field && from.Source.IsNamed(), text, chosenPlan, planOrigins},
		{!signed && !field, text, form.Quote(*text) + " has no plan", planOrigins},
		{!signed && !httpguts.ValidTrailerHeader(from.Name), text, from.Name + " has a meaning in HTTP", "write another header, for example header:X-Plan"},
		{!signed && len(l.main.ClientIP.TrustedProxies) == 0, text, chosenPlan + ": there are no trusted proxies", "write their networks under client_ip.trusted_proxies; from others the header is removed; or write jwt:CLAIM or {list: FILE}"},
	}) {
		return PlanSource{}
	}
	l.keys.signed = l.keys.signed || signed
	spec := &key.Spec{Name: "plan", From: from, Tokens: l.keys.tokens, OnMissing: key.Skip, OnInvalid: key.Skip}
	if err := spec.Check(); err != nil {
		l.fault(text, err)
	}
	return PlanSource{Name: spec}
}

// planList reads the list of plans of a limit, once for all limits on the same key.
func (l *limits) planList(f, limit *Limit) *key.List {
	if !l.oneText(&f.PlanForm.List, limit.Key) {
		return nil
	}
	of := planList{limit.Key, f.PlanForm.List, filepath.Dir(l.Location(&f.PlanForm.List).File)}
	list, read := l.planLists[of]
	if !read {
		if text, ok := l.listed(&f.PlanForm.List, Value{of: &f.OverrideForms, Spec: limit.Key}); ok {
			var problems []key.Problem
			list, problems = key.ParseNames(limit.Key, text)
			l.faults("plan.list", "not a value of the key "+limit.Key.Name+", = and the name of a plan", text, problems)
		}
		l.planLists[of] = list
	}
	for _, name := range list.Names() {
		if _, ok := limit.Plans[name]; !ok {
			l.Warn(&f.PlanForm.List, "keys of the plan "+name+" have the limit's own rates: it is not under plans", form.Near(name, form.SortedKeys(limit.Plans)))
		}
	}
	return list
}

// withoutPlan warns of plans that clients evade by leaving out their token.
func (l *limits) withoutPlan(f, limit *Limit) {
	if limit.Plan.Name == nil || limit.Key == nil || !limit.Plan.Name.From.Source.IsSigned() ||
		slices.ContainsFunc(limit.Key.Origins(), func(o key.Origin) bool { return o.Source.IsSigned() }) {
		return
	}
	for _, name := range form.SortedKeys(limit.Plans) {
		for _, rate := range limit.Plans[name] {
			if i := slices.IndexFunc(limit.Rates, func(own limiter.Rate) bool { return own.Window == rate.Window && own.Count > rate.Count }); i >= 0 {
				l.Warn(&f.PlanForm.Text, "a client of the plan "+name+" that sends no token has "+limit.Rates[i].String()+" instead of "+rate.String(),
					"let the limit's own rates be no higher than "+strconv.FormatInt(rate.Count, 10)+", or read its key from the token")
				return
			}
		}
	}
}

// attachPlans reads the lists of plans of limits.
func (l *loader) attachPlans(limits ...*Limit) {
	for _, f := range limits {
		if f.PlanForm != nil {
			l.attach(&f.PlanForm.List, maxList)
		}
	}
}

// overrides compiles the rates for some values of the key.
func (l *limits) overrides(f, limit *Limit) {
	if len(f.OverrideForms) == 0 || !l.oneText(&f.OverrideForms, limit.Key) {
		return
	}
	limit.Overrides = map[limiter.Key][]limiter.Rate{}
	first := map[limiter.Key]string{}
	for _, value := range form.SortedKeys(f.OverrideForms) {
		texts := f.OverrideForms[value]
		l.made.values = append(l.made.values, Value{of: &f.OverrideForms, Spec: limit.Key, Position: l.NameAt(texts), Text: value})
		own := l.override(texts, limit)
		k, ok := l.literal(texts, limit.Key, value)
		if !ok {
			continue
		}
		if other := first[k]; other != "" {
			l.WrongName(texts, form.Quote(value)+" is counted as "+form.Quote(other)+" is", "keep one of them")
		}
		first[k], limit.Overrides[k] = value, own
	}
}

// override compiles the rates for one value.
func (l *limits) override(texts *list, limit *Limit) []limiter.Rate {
	each := pointers(*texts)
	rates := l.parse(each, limit)
	for i, rate := range rates {
		l.keepable(each[min(i, len(each)-1)], limit, rate)
	}
	return rates
}

// oneText reports whether a value of the key is one text, and says so otherwise.
func (l *loader) oneText(pointer any, spec *key.Spec) bool {
	return spec != nil && !l.refuseFirst([]finding{
		{spec.Join != nil, pointer, "the key " + spec.Name + " is joined of several, which no single value can name", "use a key that is not joined"},
		{spec.From.Source.IsConstant(), pointer, "the key is global: it has no values", "use a key that tells clients apart"},
	})
}

// literal returns the key of a text that stands in the configuration, exactly as it is made of requests that carry this
// text. The text must hold a value.
func (l *loader) literal(pointer any, spec *key.Spec, text string) (k limiter.Key, ok bool) {
	read, instead := spec, "write it as clients send it"
	_, problems := key.ParseList(spec, slices.Values([]string{text}))
	switch {
	case spec.From.Source.IsAddress():
		problems, instead = nil, "write for example 192.0.2.1 or 2001:db8::1"
	case len(problems) > 0:
		instead = insteadOf(problems)
	case spec.Of != nil:
		instead = "write for example CN, +86 or +86138"
	case spec.From.Source.IsField(): // where less is taken
		read = &key.Spec{Name: spec.Name, From: key.HeaderField("X"), Normalize: spec.Normalize, Phone: spec.Phone}
	default: // any that clients write
		read = &key.Spec{Name: spec.Name, From: key.PathParameter("x"), Normalize: spec.Normalize, Phone: spec.Phone}
	}
	var v key.Value
	_, err := read.Read(key.Input{Texts: map[string]string{spec.Name: text}, IPv6Prefix: l.made.ClientIP.IPv6Prefix}, &v)
	if err != nil || len(problems) > 0 || spec.Of != nil && v.Text() != text {
		l.Wrong(pointer, form.Quote(text)+" is not a value of the key "+spec.Name, instead)
		return k, false
	}
	return l.made.Privacy.Hash(v.Parts), true
}
