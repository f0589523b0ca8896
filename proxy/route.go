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

// A route is what happens to the requests that match it: what the configuration says, and
// what that comes to. It is immutable, but for what its figures and those of its limits
// have looked up.
type route struct {
	*config.Route
	order   int // in the files
	figures *figures

	lists     []listLookup
	bodyLists []listLookup // whose keys are in the body
	limits    []*limit     // of Limits, those that are not off
	early     []*limit     // that are asked before a body is read
	windows   []*window
	resets    []cooldownReset              // cooldowns of other routes that its answers let begin again
	queries   bool                         // some key is read from the query
	waits     bool                         // some limit lets requests wait for a permit
	hidden    []string                     // parameters of the path that are keys
	fields    fieldNames                   // that something is read from
	besides   []string                     // parameters of the query that a form may not stand beside
	names     key.Names                    // of parameters of the query that something is read from
	deciders  []string                     // fields whose values it asks for
	written   []key.Origin                 // of its keys, where a client says what it likes; see preflight
	reads     fieldNames                   // fields that something is read from
	reserved  func(string) bool            // whether no trailer field may have this name
	newKeys   []*key.Spec                  // of which new ones are bounded; see boundedKeys
	quota     *respond.Quota               // as clients are told of it
	refunds   map[upstream.ResultKind]bool // the errors of RefundOn, as package upstream calls them
	respond   respond.Response             // of Respond
	rewrite   rewrite                      // of what is forwarded
	pool      *upstream.Pool               // nil: there is no Upstream
	repeats   *idempotency                 // nil: repeats count
	local     bool                         // some limit goes by this node's share while the store is unreachable
	standsIn  bool                         // and none denies then
	note      *routeNote                   // what is remembered of it
	leaves    map[*key.Spec][]*key.Spec    // of its joined keys
}

// guarded reports whether r has lists, or a limit that refuses.
func (r *route) guarded() bool {
	return len(r.lists) > 0 || len(r.bodyLists) > 0 || slices.ContainsFunc(r.limits, func(l *limit) bool { return l.Mode == config.Enforce })
}

// pattern says which requests r is for.
func (r *route) pattern() routing.Pattern {
	return routing.Pattern{
		Host: r.Match.Host, Methods: r.Match.Methods, Path: r.Match.Path, Headers: r.Match.Headers, Query: r.Match.Query,
		Guarded: r.guarded(), Keys: r.hidden,
		KeepsSlashes: r.EncodedSlash == config.KeepSlash, IgnoresForms: r.FormBesideQuery == config.IgnoreForm,
	}
}

// hashBy is the key by which requests go to one target; nil: any goes to any.
func (r *route) hashBy() *key.Spec {
	if r.Upstream == nil {
		return nil
	}
	return r.Upstream.HashBy
}

// redacts reports whether the log shows of the path only what tells of nobody.
func (r *route) redacts() bool { return r.LogPath == config.PathRedacted }

// A limit is one entry under limits: of a route.
type limit struct {
	*config.Limit
	top       *topLimit // counts who is seen most; nil: nothing does
	windows   []*window
	overrides map[limiter.Key][]*window         // windows of single keys
	hashed    map[string][]*window              // those of keys that are not told, by key.List.Hash
	keyed     bool                              // {key} stands in RedissonName
	refusals  limiter.Limit                     // what Penalty counts refusals by
	decisions found[string, prometheus.Counter] // by result
}

// A window is one rate of a limit: what a claim asks for.
type window struct {
	of     *limit
	number int    // its place among the route's windows, and among the policies of its quota
	rate   string // what the log calls it: phone-1h
	near   int64  // with less than this left a key is told of; 0 is never
	limiter.Limit
}

// refusal is what metrics call it when l refuses.
func (l *limit) refusal() string {
	if l.Mode == config.Shadow {
		return shadowRefused
	}
	return refused
}
