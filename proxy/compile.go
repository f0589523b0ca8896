package proxy

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/respond"
)

// compileRoute compiles the configuration of a route.
func (g *generation) compileRoute(from *config.Route) (*route, error) {
	r := &route{
		Route:         from,
		reads:         &reads{},
		metrics:       &routeMetrics{},
		fixedResponse: newRespond(from.Respond),
		rewrite:       newRewrite(&from.Rewrite),
		refunds:       refunds(from.RefundOn),
		idempotency:   newIdempotency(from.Name, from.Idempotency),
		newKeys:       limitedNewKeys(from),
		matchedFields: matchedFields(from.Match),
		noFormBeside:  from.Besides(),
	}
	if r.onlyDecided() {
		r.fixedResponse = respond.Problem(respond.NotFound, "", "")
	}
	r.readFields.add(slices.Collect(maps.Keys(from.Match.Headers))...)
	if from.Idempotency != nil {
		r.readFields.add(from.Idempotency.Header)
		r.keyFields.add(from.Idempotency.Header)
	}
	r.isReservedTrailer = g.reservedTrailers(r)
	var plain, body []*config.List
	for _, l := range from.Lists {
		r.addKey(l.Key)
		if l.Key.InBody() {
			body = append(body, l)
		} else {
			plain = append(plain, l)
		}
	}
	r.lists, r.bodyLists = newListLookups(plain), newListLookups(body)
	var err error
	if from.Upstream != nil {
		if r.pool, err = g.pool(from.Upstream); err != nil {
			return nil, err
		}
	}
	if by := r.hashBy(); by != nil {
		r.addUncounted(by)
	}
	var policies []respond.Policy
	for _, l := range from.Limits {
		if l.Mode != config.Off {
			policies = append(policies, r.addLimit(l, alerts(g.config.Alerts))...)
		}
	}
	r.reads = g.sharing.readsLike(r.reads)
	r.describe()
	g.setLoggedKeys(r)
	r.findEarlyLimits()
	r.canFallBack = r.hasLocalLimit && !slices.ContainsFunc(r.limits, func(l *limit) bool { return l.Mode == config.Enforce && l.OnStoreFailure == config.Deny })
	fields, err := g.sharing.refusal(policies, respond.Style(g.config.Defaults.Headers), newReject(from.Reject))
	if err != nil {
		return nil, err
	}
	r.rateLimitFields, r.refusalFields = fields.all, fields.constant
	if r.errorTexts = g.errorTexts; from.Errors != nil {
		r.errorTexts = newErrorTexts(from.Errors)
	}
	return r, nil
}

// fieldBlock renders fields for HTTP/1.1. It returns nil if they cannot be sent, which is reported
// when they are.
func fieldBlock(fields []respond.Field) *http1.FieldBlock {
	pairs := make([]string, 0, 2*len(fields))
	for _, f := range fields {
		pairs = append(pairs, f.Name, f.Value)
	}
	b, err := http1.NewFieldBlock(pairs...)
	if err != nil {
		return nil
	}
	return &b
}

func newReject(c config.Reject) respond.Reject {
	return respond.Reject{Status: c.Status, Detail: c.Detail, Body: c.Body, ContentType: c.ContentType, Fields: newFields(c.Headers)}
}

func newErrorTexts(all map[int]config.ErrorText) *respond.ErrorTexts {
	texts := map[int]respond.ErrorText{}
	for status, c := range all {
		texts[status] = respond.ErrorText{Detail: c.Detail, Body: c.Body, ContentType: c.ContentType, Fields: newFields(c.Headers)}
	}
	return respond.NewErrorTexts(texts)
}

// newFields returns header fields in the order of their names.
func newFields(headers map[string]string) []respond.Field {
	var fields []respond.Field
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		fields = append(fields, respond.Field{Name: name, Value: headers[name]})
	}
	return fields
}

// addLimit adds a limit to the route and returns its policies for the RateLimit-Policy field.
func (r *route) addLimit(from *config.Limit, alerts alerts) []respond.Policy {
	l := &limit{Limit: from, hasKeyName: strings.Contains(from.RedissonName, "{key}")}
	r.limits = append(r.limits, l)
	r.waits = r.waits || l.Wait > 0 && l.Mode == config.Enforce
	r.hasLocalLimit = r.hasLocalLimit || l.Mode == config.Enforce && l.OnStoreFailure == config.Local
	r.settles = r.settles || l.Algorithm.HasLeases() || l.Count != nil
	r.settlesHead = r.settlesHead || l.Count != nil || !r.RefundOn.Status.Empty()
	l.refusalLimit, l.shadowNotes = refusalLimit(from), shadowNotes(from)
	l.sends = newSends(from, l.shadowNotes)
	for read := range l.Reads() {
		if read.Purpose == config.ForPlan {
			r.addUncounted(read.Key)
		} else {
			r.addKey(read.Key)
		}
	}
	adder := rateAdder{route: r, limit: l, alerts: alerts}
	add := func(rates []limiter.Rate) []*window { return adder.add(rates, "", l.countedLimit()) }
	l.windows = add(l.Rates)
	own := len(adder.policies)
	if len(l.Overrides) > 0 {
		l.overrides = map[limiter.Key][]*window{}
	}
	for k, rates := range l.Overrides {
		l.overrides[k] = add(rates)
	}
	if l.RateFromDescriptor {
		l.addUnits(add)
		l.nearOf = func(rate limiter.Rate) int64 { return alerts.near(rate, l.Mode) }
	}
	l.addPlans(add)
	if s := l.StepUp; s != nil {
		r.readFields.add(s.Header)
		r.tokenFields = append(r.tokenFields, s.Header)
		r.readsLate = true
		l.stepUps = adder.add(s.Rates, "step_up", limiter.Limit{Algorithm: s.Algorithm, Scope: l.Scope, Noted: l.Return != nil})
		for _, w := range l.stepUps {
			w.isStepUp = true
		}
	}
	for i := range adder.policies[own:] {
		adder.policies[own+i].Override = true
	}
	return adder.policies
}

// countedLimit returns what the limits of all windows of l have in common, but for those of step_up.
func (l *limit) countedLimit() limiter.Limit {
	return limiter.Limit{Algorithm: l.Algorithm, Burst: l.Burst, Steps: l.Steps, Scope: l.Scope, Noted: l.Return != nil, Conversion: l.Conversion}
}

// setLimits sets the limits of g.
func (g *generation) setLimits() {
	compiled := map[*config.Limit]*limit{}
	for _, r := range g.routes {
		for _, l := range r.limits {
			compiled[l.Limit] = l
		}
	}
	for _, from := range g.config.Limits() {
		if l := compiled[from]; l != nil {
			g.limits = append(g.limits, l)
		}
	}
}

// plainLimits returns the limits of g whose counts alone determine which keys would be refused.
func (g *generation) plainLimits() []limiter.Limit {
	var all []limiter.Limit
	for _, l := range g.limits {
		plain := !l.Algorithm.HasValues() && !l.Algorithm.HasSteps() && l.Scope == limiter.Overall
		if !plain || l.Mode != config.Enforce || l.RedissonName != "" || len(l.overrides)+len(l.plans)+len(l.units) > 0 {
			continue
		}
		for _, w := range l.windows {
			all = append(all, w.Limit)
		}
	}
	return all
}

// refusalLimit returns the limit that counts the refusals of a limit with a penalty, over its longest
// window.
func refusalLimit(of *config.Limit) limiter.Limit {
	if of.Penalty == nil {
		return limiter.Limit{}
	}
	return limiter.Limit{Name: of.ID + ":refused", Rate: limiter.Rate{Count: of.Penalty.After, Window: longestWindow(of.Rates)}}
}

// A rateAdder adds the windows of a limit to its route.
type rateAdder struct {
	route    *route
	limit    *limit
	alerts   alerts
	policies []respond.Policy // of the windows
}

// add adds a window for each of rates. part, if not empty, is in the names of the windows, and counted is what their limits
// have in common.
func (a *rateAdder) add(rates []limiter.Rate, part string, counted limiter.Limit) (windows []*window) {
	l := a.limit
	between := func(separator string) string {
		if part == "" {
			return separator
		}
		return separator + part + separator
	}
	for _, rate := range rates {
		span := limiter.WindowName(rate.Window)
		shown := rate
		switch {
		case counted.Algorithm.HasLeases():
			span = "held"
		case counted.Algorithm.HasSteps():
			span = "cooldown" // one name whatever the steps are
			shown.Window = l.Steps[len(l.Steps)-1]
		}
		w := &window{of: l, number: len(a.route.windows), rate: l.Name + between("-") + span, near: a.alerts.near(rate, l.Mode), Limit: counted}
		w.Name, w.Limit.Rate, w.Owner = l.ID+between(":")+span, rate, w
		_ = w.Prepare() // config has checked it; if it were not valid, stores would refuse each claim
		windows, a.route.windows = append(windows, w), append(a.route.windows, w)
		name := l.Name
		if len(rates) > 1 {
			name += "-" + span
		}
		a.policies = append(a.policies, respond.Policy{Name: name, Rate: shown, Limit: l.Name, Concurrent: counted.Algorithm.HasLeases(), Expose: l.Expose && l.Mode == config.Enforce})
	}
	return windows
}

// addKey records where the key s is read from.
func (r *route) addKey(s *key.Spec) {
	for _, o := range s.Origins() {
		r.addOrigin(o)
	}
	if s.ClientChosen() {
		r.addKeyNames(s.Name)
	}
}

// addUncounted is addKey for a key by which no limit counts.
func (r *route) addUncounted(s *key.Spec) {
	counted, names := r.clientKeys, r.keyNames
	r.addKey(s)
	r.clientKeys, r.keyNames = counted, names
}

// addKeyNames adds the parameters that may hold what is read under this name; see preflight.
func (r *route) addKeyNames(name string) {
	for _, parameter := range parameterNames(name) {
		r.keyNames = r.keyNames.With(parameter)
	}
}

// addOrigin records that the route reads something from o.
func (r *route) addOrigin(o key.Origin) {
	r.readFields.add(o.Fields()...)
	if o.Source.IsNamed() {
		r.clientKeys = append(r.clientKeys, o)
		r.addKeyNames(o.Name)
	}
	if _, ok := o.Confused(); ok { // a form parameter may be in the query as well
		r.readsQuery = true
		r.queryNames = r.queryNames.With(o.Name)
	}
	switch s := o.Source; {
	case s.IsField():
		r.keyFields.add(o.Name)
	case s == key.Path:
		r.keyParams = append(r.keyParams, o.Name)
	}
	r.readsLate = r.readsLate || o.Source.IsCostly()
}
