package proxy

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A route is the compiled form of one entry under routes. It is immutable, except for the caches of
// metrics.
type route struct {
	*config.Route
	order   int // index in the configuration
	figures *figures

	lists     []listLookup
	bodyLists []listLookup // lists whose keys are in the body
	limits    []*limit     // the limits that are not off
	early     []*limit     // limits that are evaluated before the body is read
	windows   []*window
	resets    []cooldownReset           // cooldowns of other routes that responses of this route reset
	queries   bool                      // a key is read from the query
	waits     bool                      // some limit lets requests wait for a permit
	hidden    []string                  // path parameters that are keys, which the log hides
	fields    fieldNames                // header fields from which a key, a cost or an idempotency key is read
	besides   []string                  // query parameters that must not occur beside a form in the body
	names     key.Names                 // query parameters from which a key or a cost is read
	deciders  []string                  // fields whose values the route matches
	written   []key.Origin              // origins of keys whose values clients can choose; see preflight
	reads     fieldNames                // all header fields that the route reads
	reserved  func(string) bool         // reports whether a trailer field must not have this name
	newKeys   []*key.Spec               // keys for which new values are limited; see boundedKeys
	quota     *respond.Quota            // renders the rate limit fields
	refunds   map[upstream.Kind]bool    // the errors of RefundOn
	respond   respond.Response          // the response of Respond
	rewrite   rewrite                   // the rewriting of requests and responses
	pool      *upstream.Pool            // nil if there is no Upstream
	repeats   *idempotency              // nil if repeats are counted
	local     bool                      // some limit uses this node's share while the store is unreachable
	standsIn  bool                      // local, and no limit has on_store_failure: deny
	note      *routeNote                // its description in records
	leaves    map[*key.Spec][]*key.Spec // the parts of its joined keys
}

// guarded reports whether r has lists, or limits in enforce mode.
func (r *route) guarded() bool {
	return len(r.lists) > 0 || len(r.bodyLists) > 0 || slices.ContainsFunc(r.limits, func(l *limit) bool { return l.Mode == config.Enforce })
}

// pattern returns the pattern of the requests that r matches.
func (r *route) pattern() routing.Pattern {
	return routing.Pattern{
		Host: r.Match.Host, Methods: r.Match.Methods, Path: r.Match.Path, Headers: r.Match.Headers, Query: r.Match.Query,
		Guarded: r.guarded(), Keys: r.hidden,
		KeepsSlashes: r.EncodedSlash == config.KeepSlash, IgnoresForms: r.FormBesideQuery == config.IgnoreForm,
	}
}

// hashBy returns the key of hash balancing, or nil.
func (r *route) hashBy() *key.Spec {
	if r.Upstream == nil {
		return nil
	}
	return r.Upstream.HashBy
}

// redacts reports whether personal data in paths is hidden in the log.
func (r *route) redacts() bool { return r.LogPath == config.PathRedacted }

// A limit is the compiled form of one entry under limits of a route.
type limit struct {
	*config.Limit
	top       *topLimit // counts the most frequent keys; nil if they are not counted
	windows   []*window
	overrides map[limiter.Key][]*window         // windows of keys that have rates of their own
	hashed    map[string][]*window              // the same for keys listed by hash, see key.List.Hash
	keyed     bool                              // RedissonName contains {key}
	refusals  limiter.Limit                     // the limit on the number of refusals before a penalty
	decisions found[string, prometheus.Counter] // by result
}

// A window is one rate of a limit, on which claims are made.
type window struct {
	of     *limit
	number int    // index among the route's windows and its quota's policies
	rate   string // name in the log: phone-1h
	near   int64  // an alert is due if fewer permits than this remain; 0 for none
	limiter.Limit
}

// refusal returns the label value of a refusal by l.
func (l *limit) refusal() string {
	if l.Mode == config.Shadow {
		return shadowRefused
	}
	return refused
}
