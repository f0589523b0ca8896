package admin

import (
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/sends"
)

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
	Plans          []string `json:"plans,omitempty"` // names of its plans
}

// A DecisionQuery selects requests. Empty fields match all.
type DecisionQuery struct {
	RequestID string
	Route     string // none for requests that no route matched
	Limit     string
	Outcome   string // as Decision.Outcome
	Key       string // hash or id of a key
	Before    time.Time
	N         int // 100 if 0
}

// Decisions are recent decisions, newest first.
type Decisions struct {
	Decisions []Decision `json:"decisions"`
	// Nodes are the nodes that were asked, with the errors of those that did not reply.
	Nodes []NodeAnswer `json:"nodes"`
}

// A Decision is the decision about one request.
type Decision struct {
	Node      string    `json:"node"`
	RequestID string    `json:"request_id"`
	At        time.Time `json:"at"` // when the request arrived
	Route     string    `json:"route,omitempty"`
	Method    string    `json:"method"`
	Path      string    `json:"path"` // redacted as in the log
	Status    int       `json:"status"`
	// Outcome is allowed, refused, shadow_refused (allowed, but a limit in shadow mode would have
	// refused it), or rejected (not forwarded for another reason than a limit).
	Outcome string `json:"outcome"`
	// Summary is a sentence: which limit refused, and when the same request would pass.
	Summary  string          `json:"summary"`
	TookMS   float64         `json:"took_ms"`
	Limits   []DecisionLimit `json:"limits"`         // those that decided first
	More     int             `json:"more,omitempty"` // the number of further limits
	List     string          `json:"list,omitempty"` // the list that decided
	NewKeys  string          `json:"new_keys,omitempty"`
	Fallback string          `json:"fallback,omitempty"` // the policy that decided while the store was unreachable
	Upstream string          `json:"upstream,omitempty"`
	Listener string          `json:"listener,omitempty"` // what the request came by, if another proxy asked about it: decide/nginx
	Error    string          `json:"error,omitempty"`
	Repeated bool            `json:"repeated,omitempty"`  // the request repeats one that was counted
	Waited   bool            `json:"waited,omitempty"`    // the request waited for a permit
	Exempt   bool            `json:"exempt,omitempty"`    // no limit applies to the request
	BanBegan bool            `json:"ban_began,omitempty"` // this refusal started a ban
}

// A DecisionLimit is the decision of one rate about a request.
type DecisionLimit struct {
	Limit   string  `json:"limit"`
	Common  bool    `json:"common,omitempty"` // several routes have one count by the limit
	Rate    string  `json:"rate"`             // the name in the log: phone-1h
	Permits string  `json:"permits"`          // 5/1h
	Plan    string  `json:"plan,omitempty"`   // the plan of the key, which has this rate
	Result  string  `json:"result"`           // allowed, refused, shadow_refused or not_asked
	Banned  bool    `json:"banned,omitempty"`
	Left    *int64  `json:"left,omitempty"`   // nil if unknown
	Amount  string  `json:"amount,omitempty"` // of a budget: Left, as money
	WaitMS  float64 `json:"wait_ms,omitempty"`
	Key     string  `json:"key"` // the name of the key
	Masked  string  `json:"masked,omitempty"`
	Hash    string  `json:"hash,omitempty"` // the hash of the key in the log
	ID      string  `json:"id,omitempty"`   // the key id, see proxy.KeyPair.Value
}

// A TopQuery selects limits. Empty fields match all.
type TopQuery struct {
	Route, Limit string
	Minutes      int // the last minutes; 0 for all
	N            int // number of keys of each limit; 20 if 0
}

// A Top lists the keys with most requests and with most refusals.
type Top struct {
	Minutes int          `json:"minutes"`
	Limits  []TopLimit   `json:"limits"` // those with most refusals first
	Nodes   []NodeAnswer `json:"nodes"`  // the nodes that were asked, with the errors of those that did not reply
}

// A TopLimit lists the keys of one limit.
type TopLimit struct {
	Route    string  `json:"route"`
	Limit    string  `json:"limit"`
	Key      string  `json:"key"` // the name of the key
	Mode     string  `json:"mode"`
	Requests TopList `json:"requests"` // the keys with most requests
	Refused  TopList `json:"refused"`  // the keys with most refusals
}

// A TopList is a list of keys in descending order of their counts, without those that may have fewer
// requests than twice the error of their count.
type TopList struct {
	Total int64    `json:"total"` // count of all keys
	Floor int64    `json:"floor"` // maximum count of a key that is not listed
	Keys  []TopKey `json:"keys"`
}

// A TopKey is a key. Its true count is between Count-Error and Count.
type TopKey struct {
	Masked string `json:"masked"`
	Hash   string `json:"hash"`
	ID     string `json:"id"`
	Count  int64  `json:"count"`
	Error  int64  `json:"error"`
}

// A Conversion tells of limits with return_on what became of the requests that they count.
type Conversion struct {
	Limits []sends.LimitCounts `json:"limits"`
	Nodes  []NodeAnswer        `json:"nodes"` // the nodes that were asked, with the errors of those that did not reply
}

// Upstreams are the upstreams of a node, with the state of their targets on each node.
type Upstreams struct {
	Upstreams []Upstream   `json:"upstreams"` // by name
	Nodes     []NodeAnswer `json:"nodes"`     // the nodes that were asked, with the errors of those that did not reply
}

// An Upstream is one upstream. Its counts are the sums over all nodes, each since its start.
type Upstream struct {
	proxy.UpstreamState
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
	proxy.TargetState
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

// An AuditEntry is one action of an operator.
type AuditEntry struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Node    string    `json:"node"`
	Who     string    `json:"who"`               // the name of a token, or local
	Address string    `json:"address,omitempty"` // of the operator's connection
	Action  string    `json:"action"`
	Masked  string    `json:"masked,omitempty"` // the masked key
	Hash    string    `json:"hash,omitempty"`   // the hash of the key in the log
	Limits  []string  `json:"limits,omitempty"` // ROUTE.LIMIT
	For     string    `json:"for,omitempty"`    // duration of a ban
	Permits int64     `json:"permits,omitempty"`
	OneNode bool      `json:"one_node,omitempty"` // the change applies to that node only
	Detail  string    `json:"detail,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Error   string    `json:"error,omitempty"` // set if the action failed
}
