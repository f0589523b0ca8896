package proxy

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A route is what happens to the requests that match it. It is immutable, but for what
// its figures and those of its limits have looked up.
type route struct {
	name    string
	path    string // as the configuration has it: a pattern
	order   int    // in the files
	figures *figures

	lists           []listLookup
	bodyLists       []listLookup // whose keys are in the body
	limits          []*limit
	early           []*limit // that are asked before a body is read
	windows         []*window
	resets          []cooldownReset   // cooldowns of other routes that its answers let begin anew
	queries         bool              // some key is read from the query
	waits           bool              // some limit lets requests wait for their turn
	hidden          []string          // parameters of the path that are keys
	redacted        bool              // the log shows of the path what tells of nobody
	fields          fieldNames        // that something is read from
	besides         []string          // parameters of the query that a form may not stand beside
	names           key.Names         // of parameters of the query that something is read from
	deciders        []string          // fields whose values it asks for
	written         []key.Origin      // of its keys, where a client says what it likes; see preflight
	reads           fieldSet          // fields that something is read from
	reserved        func(string) bool // whether no trailer field may have this name
	newKeys         newKeys
	quota           *respond.Quota
	refund          refund
	reply           *reply         // nil: requests are forwarded
	rewrite         rewrite        // of what is forwarded
	pool            *upstream.Pool // nil: there is a reply
	hashBy          *key.Spec      // requests with one of these keys go to one target; nil: any goes to any
	forwardedField  bool           // the upstream is told of the client by RFC 7239's field too
	upgrades        bool           // WebSocket is allowed
	countsPreflight bool           // limits are asked about preflights too
	alerts          alerts
	idempotency     *idempotency              // nil: repeats count
	local           bool                      // some limit goes by this node's share while the store is away
	standsIn        bool                      // and none denies then
	maxBody         int64                     // bytes; 0 for any
	note            *routeNote                // what is remembered of it
	leaves          map[*key.Spec][]*key.Spec // of its joined keys
}

// guarded reports whether r has lists, or a limit that refuses.
func (r *route) guarded() bool {
	return len(r.lists) > 0 || len(r.bodyLists) > 0 || slices.ContainsFunc(r.limits, func(l *limit) bool { return l.mode == config.Enforce })
}

// pattern says which requests r is for.
func (r *route) pattern(from *config.Route) routing.Pattern {
	return routing.Pattern{
		Host: from.Match.Host, Methods: from.Match.Methods, Path: from.Match.Path, Headers: from.Match.Headers, Query: from.Match.Query,
		Guarded: r.guarded(), Keys: r.hidden,
		KeepsSlashes: from.EncodedSlash == config.KeepSlash, IgnoresForms: from.FormBesideQuery == config.IgnoreForm,
	}
}

// A limit is one entry under limits: of a route.
type limit struct {
	name       string
	key        *key.Spec
	top        *topLimit             // counts who is seen most; nil: nothing does
	windows    []int                 // of the route
	overrides  map[limiter.Key][]int // windows of single keys
	hashed     *key.List             // keys that have windows of their own and are not told; nil: none
	ofHashed   map[string][]int      // their windows, by key.List.Hash
	redisson   string                // name of the limiter that Java programs share; {key} is the key's text
	keyed      bool                  // that is in it
	form       limiter.RedissonForm  // how Java programs keep it
	penalty    *penalty              // nil: none
	distinct   *key.Spec             // whose values are counted; nil: requests are
	cost       *config.Cost          // nil: each request costs 1
	wait       time.Duration         // how long a request may wait for its turn; 0: not at all
	maxWaiting int                   // requests of one key that wait at a time
	mode       config.Mode
	onFailure  config.OnStoreFailure
	count      *config.Statuses                  // after which a request stays counted; nil is all
	decisions  found[string, prometheus.Counter] // by result
}

// A penalty counts the refusals of a limit, and bans.
type penalty struct {
	limiter.Limit
	ban time.Duration
}

// A window is one rate of a limit: what a claim asks for.
type window struct {
	of     *limit
	policy int    // index in the route's quota
	rate   string // what the log calls it: phone-1h
	near   int64  // with less than this left a key is told of; 0 is never
	limiter.Limit
}

// refusal is what metrics call it when l refuses.
func (l *limit) refusal() string {
	if l.mode == config.Shadow {
		return shadowRefused
	}
	return refused
}
