package proxy

import (
	"maps"
	"net/http"
	"slices"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/respond"
)

// compileRoute compiles the configuration of a route.
func (g *generation) compileRoute(from *config.Route) (*route, error) {
	r := &route{
		Route:         limit.NewRoute(from, limit.Alerts(g.config.Alerts)),
		reads:         &reads{},
		metrics:       &routeMetrics{},
		fixedResponse: newRespond(from.Respond),
		rewrite:       newRewrite(&from.Rewrite),
		refunds:       refunds(from.RefundOn),
		newKeys:       limitedNewKeys(from),
		matchedFields: matchedFields(from.Match),
		noFormBeside:  from.Besides(),
	}
	if r.onlyDecided() {
		r.fixedResponse = respond.Problem(http.StatusNotFound, "", "")
	}
	r.readFields.add(from.Fields()...)
	if from.Idempotency != nil {
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
	if from.Upstream != nil {
		r.pool = g.pool(from.Upstream)
	}
	if by := r.hashBy(); by != nil {
		r.addUncounted(by)
	}
	for _, l := range r.Active {
		r.addReads(l)
	}
	r.readFields.add(r.TokenFields...)
	r.readsLate = r.readsLate || len(r.TokenFields) > 0
	r.reads = g.sharing.readsLike(r.reads)
	r.describe()
	g.setLoggedKeys(r)
	r.findEarlyLimits()
	r.setClaimSteps()
	var err error
	r.rateLimitFields, err = g.sharing.rateLimitFields(r.policies(), respond.Style(g.config.Defaults.Headers), newReject(from.Reject))
	if err != nil {
		return nil, err
	}
	if r.errorTexts = g.errorTexts; from.Errors != nil {
		r.errorTexts = newErrorTexts(from.Errors)
	}
	return r, nil
}

func newReject(c config.Reject) respond.Reject {
	return respond.Reject{Status: c.Status, Detail: c.Detail, Body: c.Body, ContentType: c.ContentType, Fields: newFields(c.Headers)}
}

func newErrorTexts(all map[int]config.Reject) *respond.ErrorTexts {
	var texts []respond.Reject
	for _, c := range all {
		texts = append(texts, newReject(c))
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

// addReads records where the keys that a limit reads are read from.
func (r *route) addReads(l *limit.Limit) {
	for read := range l.Reads() {
		if read.Purpose == config.ForPlan {
			r.addUncounted(read.Key)
		} else {
			r.addKey(read.Key)
		}
	}
}

// policies returns the policies of the windows of r for the RateLimit-Policy field.
func (r *route) policies() (all []respond.Policy) {
	for _, w := range r.Windows {
		all = append(all, respond.Policy{
			Name: w.Policy, Rate: w.Shown, Limit: w.Of.Name, Concurrent: w.Algorithm.HasLeases(), Expose: w.Of.IsShown(), IsOther: w.IsOther,
		})
	}
	return all
}

// setLimits sets the limits of g.
func (g *generation) setLimits() {
	compiled := map[*config.Limit]*limit.Limit{}
	for _, r := range g.routes {
		for _, l := range r.Active {
			compiled[l.Limit] = l
		}
	}
	for _, from := range g.config.Limits() {
		if l := compiled[from]; l != nil {
			g.limits = append(g.limits, l)
		}
	}
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
