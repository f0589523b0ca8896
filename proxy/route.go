package proxy

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
	"github.com/weir-proxy/weir/proxy/view"
)

// A route is the compiled form of one entry under routes. It is immutable, except for the caches of
// metrics.
type route struct {
	limit.Route
	*reads
	order   int // index in the table of routes; of no meaning for descriptors
	metrics *routeMetrics

	lists             []listLookup
	bodyLists         []listLookup                 // lists whose keys are in the body
	early             []*limit.Limit               // limits that are evaluated before the body is read
	noFormBeside      []string                     // query parameters that must not occur beside a form in the body
	matchedFields     []string                     // fields whose values the route matches
	isReservedTrailer func(string) bool            // reports whether a trailer field must not have this name
	claimSteps        []claimStep                  // the stages between the route and the decision that its requests pass
	newKeys           []*key.Spec                  // keys for which new values are limited; see limitedNewKeys
	rateLimitFields   *respond.RateLimitFields     // renders the rate limit fields
	errorTexts        respond.ErrorTexts           // the texts of errors
	refunds           map[upstream.ResultKind]bool // the errors of RefundOn
	fixedResponse     respond.Response             // the response of Respond
	rewrite           rewrite                      // the rewriting of requests and responses
	pool              *upstream.Pool               // nil if there is no Upstream
	description       *decisions.Route             // its description in records
	leaves            map[*key.Spec][]*key.Spec    // the parts of its joined keys
	loggedKeys        []*key.Spec                  // the keys in the field keys of its lines
}

// reads is what a route reads of requests. Routes that read the same share it.
type reads struct {
	readsQuery bool         // a key is read from the query
	readsLate  bool         // a key or a cost is read from the body, or from a token, which takes long to verify
	keyParams  []string     // path parameters that are keys, which the log hides
	keyFields  fieldNames   // header fields from which a key, a cost or an idempotency key is read
	queryNames key.NameSet  // query parameters from which a key or a cost is read
	clientKeys []key.Origin // origins of keys whose values clients can choose; see preflight
	keyNames   key.NameSet  // query parameters that a server may take for these keys; see preflight
	readFields fieldNames   // all header fields that the route reads
}

// onlyLimits reports whether r has no lists, early limits, limits on new keys or idempotency.
func (r *route) onlyLimits() bool {
	return len(r.lists)+len(r.bodyLists)+len(r.early)+len(r.newKeys) == 0 && r.Repeats == nil
}

// pattern returns the pattern of the requests that r matches. Lists and limits in enforce mode may refuse them; a
// response of its own with an error does.
func (r *route) pattern() routing.Pattern {
	guarded := len(r.lists)+len(r.bodyLists) > 0 || slices.ContainsFunc(r.Active, (*limit.Limit).Enforces)
	refuses := r.Respond != nil && r.Respond.Status >= 400
	return routing.Pattern{
		Host: r.Match.Host, Methods: r.Match.Methods, Path: r.Match.Path, Headers: r.Match.Headers, Query: r.Match.Query, Scheme: r.Match.Scheme,
		Guarded: guarded || refuses, IsRest: refuses && !guarded && r.Match.Path == "/*", Keys: r.keyParams, EndsInKey: r.LastKey() != "",
		KeepsSlashes: r.EncodedSlash == config.KeepSlash, KeepsRepeats: !r.MergeSlashes, IgnoresForms: r.FormBesideQuery == config.IgnoreForm,
	}
}

// hashBy returns the key of hash balancing, or nil.
func (r *route) hashBy() *key.Spec {
	if r.Upstream == nil {
		return nil
	}
	return r.Upstream.HashBy
}

// redactsPaths reports whether personal data in paths is hidden in the log.
func (r *route) redactsPaths() bool { return r.LogPath == config.PathRedacted }

// A sharing lets routes that are compiled together share what is the same for them. Of many routes most read the
// same fields and refuse requests in the same words.
type sharing struct {
	reads  map[string]*reads // by their text
	fields map[string]*respond.RateLimitFields
}

func newSharing() sharing { return sharing{map[string]*reads{}, map[string]*respond.RateLimitFields{}} }

// readsLike returns the first reads that are like r.
func (s *sharing) readsLike(r *reads) *reads {
	text := fmt.Sprintf("%#v", *r)
	if s.reads[text] == nil {
		s.reads[text] = r
	}
	return s.reads[text]
}

// rateLimitFields returns the fields for these policies and refusals.
func (s *sharing) rateLimitFields(policies []respond.Policy, style respond.Style, reject respond.Reject) (*respond.RateLimitFields, error) {
	text := fmt.Sprintf("%#v %#v", policies, reject)
	if f, found := s.fields[text]; found {
		return f, nil
	}
	f, err := respond.NewRateLimitFields(policies, style, reject)
	if err == nil {
		s.fields[text] = f
	}
	return f, err
}

// compileRoute compiles the configuration of a route.
func (g *generation) compileRoute(from *config.Route) (*route, error) {
	r := &route{
		Route:         limit.NewRoute(from, g.config.Alerts),
		reads:         &reads{},
		metrics:       &routeMetrics{},
		refunds:       refunds(from.RefundOn),
		newKeys:       limitedNewKeys(from),
		matchedFields: matchedFields(from.Match),
		noFormBeside:  from.Besides(),
	}
	r.compileTexts()
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
	r.readsLate = r.readsLate || r.reserves() || len(r.TokenFields) > 0
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

func newErrorTexts(all map[int]config.Reject) respond.ErrorTexts {
	return respond.NewErrorTexts(view.Each(slices.Collect(maps.Values(all)), newReject))
}

// newFields returns header fields in the order of their names.
func newFields(headers map[string]string) []respond.Field {
	return view.Each(slices.Sorted(maps.Keys(headers)), func(name string) respond.Field { return respond.Field{Name: name, Value: headers[name]} })
}

// compileTexts compiles what r says to clients whom it does not refuse, and to its upstream.
func (r *route) compileTexts() {
	r.rewrite = newRewrite(r.Route.Route)
	if c := r.Respond; c != nil {
		r.fixedResponse = respond.Static(c.Status, c.ContentType, c.Body, newFields(c.Headers))
	} else if r.onlyDecided() {
		r.fixedResponse = respond.Problem(http.StatusNotFound, "", "")
	}
}

// addReads records where the keys that a limit reads are read from.
func (r *route) addReads(l *limit.Limit) {
	for _, read := range l.Reads() {
		if read.Purpose == config.ForPlan {
			r.addUncounted(read.Key)
		} else {
			r.addKey(read.Key)
		}
	}
}

// policies returns the policies of the windows of r for the RateLimit-Policy field.
func (r *route) policies() []respond.Policy {
	return view.Each(r.Windows, func(w *limit.Window) respond.Policy {
		return respond.Policy{Name: w.Policy, Rate: w.Shown, Limit: w.Of.Name, Concurrent: w.Algorithm.HasLeases(), Expose: w.Of.IsShown(), IsOther: w.IsOther}
	})
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
	if other, ok := o.Confused(); ok { // what is in the body may be in the query as well
		r.readsQuery = true
		r.queryNames = r.queryNames.With(other.Name)
	}
	switch s := o.Source; {
	case s.IsField():
		r.keyFields.add(o.Name)
	case s == key.Path:
		r.keyParams = append(r.keyParams, o.Name)
	}
	r.readsLate = r.readsLate || o.Source.IsCostly()
}
