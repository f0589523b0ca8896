package proxy

import (
	"fmt"
	"slices"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
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
	namesPlain        bool                         // no name of these fields, nor of those protected on all routes, can be confusable by itself
	isReservedTrailer func(string) bool            // reports whether a trailer field must not have this name
	claimSteps        []claimStep                  // the stages between the route and the decision that its requests pass
	newKeys           []*key.Spec                  // keys for which new values are limited; see limitedNewKeys
	rateLimitFields   *respond.RateLimitFields     // renders the rate limit fields
	errorTexts        *respond.ErrorTexts          // the texts of errors
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

// guarded reports whether r has lists, or limits in enforce mode.
func (r *route) guarded() bool {
	return len(r.lists) > 0 || len(r.bodyLists) > 0 || slices.ContainsFunc(r.Active, (*limit.Limit).Enforces)
}

// pattern returns the pattern of the requests that r matches.
func (r *route) pattern() routing.Pattern {
	return routing.Pattern{
		Host: r.Match.Host, Methods: r.Match.Methods, Path: r.Match.Path, Headers: r.Match.Headers, Query: r.Match.Query, Scheme: r.Match.Scheme,
		Guarded: r.guarded(), Keys: r.keyParams, EndsInKey: r.LastKey() != "",
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
