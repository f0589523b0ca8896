package view

import (
	"cmp"
	"slices"
	"time"
)

// A NodeAnswer is the answer of one node.
type NodeAnswer struct {
	Node string `json:"node"`
	Said string `json:"said"` // ok, or an error; empty if the node has not answered
}

// IsOK reports whether the node has answered, or can do what was asked.
func (a NodeAnswer) IsOK() bool { return a.Said == "ok" }

// String names the node, and says what it said.
func (a NodeAnswer) String() string { return a.Node + ": " + cmp.Or(a.Said, "no answer") }

// NotOK returns the answers of the nodes that did not answer, or cannot do what was asked.
func NotOK(all []NodeAnswer) []NodeAnswer {
	return slices.DeleteFunc(slices.Clone(all), NodeAnswer.IsOK)
}

// A Member is one node.
type Member struct {
	ID         string    `json:"id"`
	Address    string    `json:"address"` // of its admin listener; a wildcard address is replaced by the host name
	Version    string    `json:"version"` // of the program
	Source     string    `json:"source"`  // of its configuration: file or redis
	Hash       string    `json:"hash"`    // of the configuration it serves
	Generation int64     `json:"generation"`
	Started    time.Time `json:"started"`           // by its own clock
	Seen       time.Time `json:"seen"`              // last heartbeat, by Redis's clock
	Drift      bool      `json:"drift"`             // it serves another configuration than most nodes do
	Problem    string    `json:"problem,omitempty"` // why it cannot read the pushed configuration
	// CallsBySlot are the masters of a Redis Cluster that it sends a script call for each slot, not one for all.
	CallsBySlot []string `json:"calls_by_slot,omitempty"`
}

// A Leadership is the current leader, and the last runs of its tasks.
type Leadership struct {
	Self  string    `json:"self"` // the node that responds
	Node  string    `json:"node"` // empty if there is no leader
	Since time.Time `json:"since,omitzero"`
	Token int64     `json:"token,omitempty"`
	Tasks []TaskRun `json:"tasks"` // by name; without those that have not run yet
}

// A TaskRun is the last run of a leader task.
type TaskRun struct {
	Task  string    `json:"task"`
	Node  string    `json:"node"`
	At    time.Time `json:"at"` // when it started
	Took  float64   `json:"took_ms"`
	Did   string    `json:"did,omitempty"`
	Error string    `json:"error,omitempty"`
	Next  time.Time `json:"next"` // when it starts again
}

// Statistics are the counts of all nodes by minute.
type Statistics struct {
	Minutes []Minute `json:"minutes"` // oldest first, without minutes that have no requests; the last may not be over
	// Last has the counts of 60 seconds, which ended at most six seconds ago.
	Last Minute `json:"last"`
}

// A Minute has the counts of one minute, of all nodes together.
type Minute struct {
	At     time.Time     `json:"at"` // when it started
	Routes []RouteMinute `json:"routes"`
}

// A RouteMinute has the requests of a route by their outcomes, each counted once, and the decisions of its
// limits. Requests without a route have the name none. Nodes of older versions report requests without an
// outcome.
type RouteMinute struct {
	Route         string        `json:"route"`
	Requests      int64         `json:"requests"`
	Allowed       int64         `json:"allowed"`
	Refused       int64         `json:"refused"`        // by a limit, or for too many new keys
	ShadowRefused int64         `json:"shadow_refused"` // allowed, but a limit in shadow mode would have refused them
	Rejected      int64         `json:"rejected"`       // not forwarded for another reason
	Unavailable   int64         `json:"unavailable"`    // not decided: the store was unreachable
	Limits        []LimitMinute `json:"limits,omitempty"`
}

// A LimitMinute has the decisions of a limit: one for each request of which it was asked.
type LimitMinute struct {
	Limit         string     `json:"limit"`
	Allowed       int64      `json:"allowed"`
	Refused       int64      `json:"refused"`
	ShadowRefused int64      `json:"shadow_refused"`
	Unavailable   int64      `json:"unavailable"`
	Settled       Settlement `json:"settled,omitzero"` // of a limit whose costs are known afterwards
}

// A Settlement has what became of the permits that a limit had reserved for requests whose responses came in this time.
type Settlement struct {
	// Reserved are the permits of the requests that are settled. Of these some were Refunded, and others were Charged besides.
	Reserved int64 `json:"reserved"`
	Refunded int64 `json:"refunded"`
	Charged  int64 `json:"charged"`
	Requests int64 `json:"requests"` // that are settled
	// The others keep what was reserved for them: their response does not say what was used, is an error, encoded or cut.
	Absent  int64 `json:"absent"`
	Error   int64 `json:"error"`
	Encoded int64 `json:"encoded"`
	Cut     int64 `json:"cut"`
}

// Used returns the permits that were used.
func (s Settlement) Used() int64 { return s.Reserved - s.Refunded + s.Charged }

// Counts returns the counts of l by the results of a Series of package proxy.
func (l *LimitMinute) Counts() map[string]*int64 {
	s := &l.Settled
	return map[string]*int64{
		"allowed": &l.Allowed, "refused": &l.Refused, "shadow_refused": &l.ShadowRefused, "unavailable": &l.Unavailable,
		"reserved": &s.Reserved, "refunded": &s.Refunded, "charged": &s.Charged, "settled": &s.Requests,
		"absent": &s.Absent, "error": &s.Error, "encoded": &s.Encoded, "cut": &s.Cut,
	}
}

// An Entry is one pushed configuration.
type Entry struct {
	Generation int64     `json:"generation"`
	Hash       string    `json:"hash"`
	Author     string    `json:"author"`
	Node       string    `json:"node"`           // the node that received the push
	At         time.Time `json:"at"`             // by Redis's clock
	From       int64     `json:"from,omitempty"` // for a rollback, the restored generation
}

// An AuditQuery selects a page of the audit trail.
type AuditQuery struct {
	Before string // id of an entry; empty for the newest entries
	N      int    // 100 if 0, at most 500
}

// An Audit is a page of the audit trail, newest first.
type Audit struct {
	Entries []AuditEntry `json:"entries"`
	Next    string       `json:"next,omitempty"` // cursor for the next page; empty at the end
}

// An AuditEntry is one action of an operator. The key itself is never recorded.
type AuditEntry struct {
	ID      string    `json:"id"` // assigned by the audit trail, ascending
	At      time.Time `json:"at"`
	Node    string    `json:"node"`
	Who     string    `json:"who"`               // the name of a token, or local
	Address string    `json:"address,omitempty"` // of the operator's connection
	// Action is reset, grant, ban, unban or verified for a key; reload, push or rollback for the configuration.
	Action  string   `json:"action"`
	Masked  string   `json:"masked,omitempty"` // the masked key
	Hash    string   `json:"hash,omitempty"`   // the hash of the key in the log
	Limits  []string `json:"limits,omitempty"` // that were changed: ROUTE.LIMIT
	For     string   `json:"for,omitempty"`    // duration of a ban
	Permits int64    `json:"permits,omitempty"`
	OneNode bool     `json:"one_node,omitempty"` // the change applies to that node only; Detail tells if it waits for Redis
	Behind  []string `json:"behind,omitempty"`   // the nodes that were not heard from: they follow once they are back
	Detail  string   `json:"detail,omitempty"`
	Reason  string   `json:"reason,omitempty"` // given by the operator
	Error   string   `json:"error,omitempty"`  // set if the action failed
}

// LogCounts are the lines of an access log that is replayed, by what they are.
type LogCounts struct {
	Lines     int64 `json:"lines"`
	Requests  int64 `json:"requests"`
	Others    int64 `json:"others"`       // lines that are not requests
	Malformed int64 `json:"malformed"`    // lines that cannot be parsed
	Late      int64 `json:"late"`         // requests evaluated later than they arrived, because their lines were too far behind
	Untimed   int64 `json:"untimed"`      // requests without a duration in the log
	Hostless  int64 `json:"hostless"`     // requests without a host in the log
	TooMany   int64 `json:"answered_429"` // requests that had the status 429 in the log
}

// A SimulatedDifference compares a route, or with Limit set a limit, in two configurations.
type SimulatedDifference struct {
	Route string        `json:"route"`
	Limit string        `json:"limit,omitempty"`
	A     SimulatedSide `json:"a"` // the current configuration
	B     SimulatedSide `json:"b"` // the other configuration
}

// A SimulatedSide is the result of one configuration.
type SimulatedSide struct {
	There    bool     `json:"there"`          // the configuration has this route or limit
	Mode     string   `json:"mode,omitempty"` // of a limit
	Rates    []string `json:"rates"`
	Passed   int64    `json:"passed"`
	Refused  int64    `json:"refused"`
	Shadowed int64    `json:"shadowed"`
	Unknown  int64    `json:"unknown"`
}

// MayRefuse returns how many more than Refused there may be: of a limit in shadow mode none.
func (s SimulatedSide) MayRefuse() int64 { return s.Unknown - s.MayShadow() }

// MayShadow returns how many more than Shadowed there may be: of a limit in enforce mode none.
func (s SimulatedSide) MayShadow() int64 {
	if s.Mode == "shadow" {
		return s.Unknown
	}
	return 0
}

// A Config is the configuration of a node.
type Config struct {
	Node       string `json:"node"`
	Generation int64  `json:"generation"`
	Hash       string `json:"hash"`
	// Effective is YAML with all defaults. Secrets are hidden, and the values of lists and
	// overrides are left out.
	Effective string `json:"effective"`
}

// Routes are the routes of a node's configuration.
type Routes struct {
	Generation int64   `json:"generation"`
	Routes     []Route `json:"routes"` // in the order of the configuration
}

// Names returns the names of the routes.
func (r Routes) Names() []string { return Each(r.Routes, func(r Route) string { return r.Name }) }

// A Route is one route.
type Route struct {
	Name     string            `json:"name"`
	Position string            `json:"position"` // file:line:column
	Host     string            `json:"host,omitempty"`
	Methods  []string          `json:"methods,omitempty"` // empty for all
	Path     string            `json:"path"`
	Headers  map[string]string `json:"headers,omitempty"` // fields that are matched
	Query    map[string]string `json:"query,omitempty"`
	Upstream string            `json:"upstream,omitempty"`
	Redirect string            `json:"redirect,omitempty"`
	Respond  int               `json:"respond,omitempty"` // status of the fixed response
	Limits   []string          `json:"limits"`            // by name
	Lists    []string          `json:"lists,omitempty"`
	NewKeys  string            `json:"new_keys,omitempty"` // maximum rate of new keys of a client: 20/1h
}

// Limits are the limits of all routes.
type Limits struct {
	Generation int64   `json:"generation"`
	Limits     []Limit `json:"limits"` // in the order of the configuration
}

// A Limit is one limit of a route.
type Limit struct {
	Route          string   `json:"route"`            // empty for a limit of several routes
	Routes         []string `json:"routes,omitempty"` // of a limit of several routes
	Name           string   `json:"name"`
	Position       string   `json:"position"`
	Key            string   `json:"key"`                // the name of the key
	Parts          []string `json:"parts,omitempty"`    // names of the parts of a joined key
	Distinct       string   `json:"distinct,omitempty"` // name of the key whose distinct values are counted
	Rates          []string `json:"rates"`              // 5/1h
	Algorithm      string   `json:"algorithm"`
	Burst          int64    `json:"burst,omitempty"`
	Mode           string   `json:"mode"`  // enforce, shadow or off
	Scope          string   `json:"scope"` // overall or per_instance
	OnStoreFailure string   `json:"on_store_failure"`
	Exposed        bool     `json:"expose"`
	Overrides      int      `json:"overrides,omitempty"` // keys with rates of their own
	Redisson       string   `json:"redisson,omitempty"`  // the name of the shared Redisson limiter
	Wait           string   `json:"wait,omitempty"`
	Plans          []string `json:"plans,omitempty"`  // names of its plans
	Permit         string   `json:"permit,omitempty"` // of a budget, what a permit is: 0.0001 USD

	AmountText func(n int64) string `json:"-"` // formats permits of a budget as money
}

// Amount returns a number of permits as it is shown.
func (l Limit) Amount(n int64) string {
	if l.AmountText != nil {
		return l.AmountText(n)
	}
	return Count(n)
}

// An UpstreamStanding is the state of one upstream and its targets on a node.
type UpstreamStanding struct {
	UpstreamState
	Targets []TargetStanding `json:"targets"` // in the order of the configuration
}

// An UpstreamState is the state of one upstream. Of several nodes, the counts are sums.
type UpstreamState struct {
	Name           string   `json:"name"`
	Echo           bool     `json:"echo,omitempty"` // built in, with one target
	Routes         []string `json:"routes"`         // the routes that forward to it
	Balance        string   `json:"balance"`
	Protocol       string   `json:"protocol"`
	MaxConnections int      `json:"max_connections,omitempty"` // maximum concurrent requests of a target; 0 for no limit
	Queue          int      `json:"queue,omitempty"`           // maximum number of waiting requests on each node
	Waiting        int      `json:"waiting"`                   // current number of waiting requests
	Retries        int      `json:"retries,omitempty"`         // maximum number of retries of one request
	Retried        int64    `json:"retried"`                   // number of retries since the process started
	Checked        string   `json:"checked,omitempty"`         // path of active health checks; empty if there are none
}

// A TargetStanding is the state of one target.
type TargetStanding struct {
	Target string `json:"target"` // its URL
	Weight int    `json:"weight"`
	TargetState
	Results map[string]int64 `json:"results"` // counts all requests by result, with the label values of the metrics
}

// The states of a target.
const (
	Healthy   = "healthy"
	SlowStart = "slow_start" // recovered: its share grows
	Probing   = "probing"    // its ejection has ended: the next request tests it
	Ejected   = "ejected"    // by passive health checks (outlier detection)
	Unhealthy = "unhealthy"  // by active health checks
)

// IsPreferred reports whether the target is preferred over those of which it is not true.
func (s TargetState) IsPreferred() bool { return s.State != Ejected && s.State != Unhealthy }

// A TargetState is the health and the load of one target on one node.
type TargetState struct {
	State          string    `json:"state"`                     // healthy, slow_start, probing, ejected or unhealthy
	FailedConnects int       `json:"failed_connects,omitempty"` // consecutive
	FailedChecks   int       `json:"failed_checks,omitempty"`   // consecutive
	EjectedUntil   time.Time `json:"ejected_until,omitzero"`    // by the clock of the node
	Share          float64   `json:"share"`                     // of the traffic of a healthy target, from 0 to 1
	InFlight       int       `json:"in_flight"`
	// Requests counts the requests whose last attempt used this target, since the process started.
	// Errors counts those that failed because of the target or the connection to it.
	Requests int64 `json:"requests"`
	Errors   int64 `json:"errors"`
}

// Upstreams are the upstreams of a node, with the state of their targets on each node.
type Upstreams struct {
	Upstreams []Upstream   `json:"upstreams"` // by name
	Nodes     []NodeAnswer `json:"nodes"`     // the nodes that were asked, with the errors of those that did not reply
}

// An Upstream is one upstream. Its counts are the sums over all nodes, each since its start.
type Upstream struct {
	UpstreamState
	Targets []Target `json:"targets"`
}

// A Target is one server of an upstream.
type Target struct {
	Target string `json:"target"` // its URL
	Weight int    `json:"weight"`
	// State is the worst state on any node: healthy, slow_start, probing, ejected, unhealthy.
	State    string `json:"state"`
	InFlight int    `json:"in_flight"`
	// Requests counts the requests whose last attempt used this target. Errors counts those that
	// failed because of the target or the connection to it. Results counts all of them by result.
	Requests int64            `json:"requests"`
	Errors   int64            `json:"errors"`
	Results  map[string]int64 `json:"results"`
	Nodes    []TargetNode     `json:"nodes"`
}

// A TargetNode is the state of a target on one node.
type TargetNode struct {
	Node string `json:"node"`
	TargetState
}
