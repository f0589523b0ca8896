package admin

import "time"

// A Config is the configuration of a node.
type Config struct {
	Node       string `json:"node"`
	Generation int64  `json:"generation"`
	Hash       string `json:"hash"`
	// Effective is YAML with all defaults filled in. Secrets are masked, and values of
	// lists and overrides hashed.
	Effective string `json:"effective"`
}

// Routes are the routes of a node's configuration.
type Routes struct {
	Generation int64   `json:"generation"`
	Routes     []Route `json:"routes"` // in the order of the file
}

// A Route is one route.
type Route struct {
	Name     string            `json:"name"`
	Position string            `json:"position"` // file:line:column
	Host     string            `json:"host,omitempty"`
	Methods  []string          `json:"methods,omitempty"` // none: all
	Path     string            `json:"path"`
	Headers  map[string]string `json:"headers,omitempty"` // required header fields
	Query    map[string]string `json:"query,omitempty"`
	Upstream string            `json:"upstream,omitempty"`
	Redirect string            `json:"redirect,omitempty"`
	Respond  int               `json:"respond,omitempty"` // the status of its fixed response
	Limits   []string          `json:"limits"`            // by name
	Lists    []string          `json:"lists,omitempty"`
	NewKeys  string            `json:"new_keys,omitempty"` // rate of new keys per client: 20/1h
}

// Limits are the limits of all routes.
type Limits struct {
	Generation int64   `json:"generation"`
	Limits     []Limit `json:"limits"` // in the order of the file
}

// A Limit is one limit of a route.
type Limit struct {
	Route          string   `json:"route"`
	Name           string   `json:"name"`
	Position       string   `json:"position"`
	Key            string   `json:"key"`                // its name
	Parts          []string `json:"parts,omitempty"`    // for a joined key, the names of its parts
	Distinct       string   `json:"distinct,omitempty"` // name of the key whose values are counted
	Rates          []string `json:"rates"`              // 5/1h
	Algorithm      string   `json:"algorithm"`
	Burst          int64    `json:"burst,omitempty"`
	Mode           string   `json:"mode"`  // enforce, shadow or off
	Scope          string   `json:"scope"` // overall or per_client
	OnStoreFailure string   `json:"on_store_failure"`
	Exposed        bool     `json:"expose"`
	Overrides      int      `json:"overrides,omitempty"` // number of keys with other rates
	Redisson       string   `json:"redisson,omitempty"`  // the limiter shared with Java programs
	Wait           string   `json:"wait,omitempty"`
}

// A DecisionQuery filters decisions; empty fields match all.
type DecisionQuery struct {
	RequestID string
	Route     string
	Limit     string
	Outcome   string // as Decision.Outcome
	Key       string // hash or id of a key
	Before    time.Time
	N         int // 100 when 0
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
	At        time.Time `json:"at"` // when it came
	Route     string    `json:"route,omitempty"`
	Method    string    `json:"method"`
	Path      string    `json:"path"` // as the log shows it
	Status    int       `json:"status"`
	// Outcome is allowed, refused (by a limit, or new_keys), shadow_refused (allowed, but
	// refused if all limits were enforced), or rejected, for a reason other than a limit.
	Outcome  string          `json:"outcome"`
	TookMS   float64         `json:"took_ms"`
	Limits   []DecisionLimit `json:"limits"`
	More     int             `json:"more,omitempty"` // limits beyond those
	List     string          `json:"list,omitempty"` // the one that decided
	NewKeys  string          `json:"new_keys,omitempty"`
	Fallback string          `json:"fallback,omitempty"` // the policy applied while the store was unreachable
	Upstream string          `json:"upstream,omitempty"`
	Error    string          `json:"error,omitempty"`
	Repeated bool            `json:"repeated,omitempty"`  // it repeats a counted request
	Waited   bool            `json:"waited,omitempty"`    // it waited for a permit
	Exempt   bool            `json:"exempt,omitempty"`    // no limit applied
	BanBegan bool            `json:"ban_began,omitempty"` // by this refusal
}

// A DecisionLimit is the result of one rate for a request.
type DecisionLimit struct {
	Limit  string  `json:"limit"`
	Rate   string  `json:"rate"`   // as the log calls it: phone-1h
	Result string  `json:"result"` // allowed, refused, shadow_refused or not_asked
	Banned bool    `json:"banned,omitempty"`
	Left   *int64  `json:"left,omitempty"` // absent if unknown
	WaitMS float64 `json:"wait_ms,omitempty"`
	Key    string  `json:"key"` // its name
	Masked string  `json:"masked,omitempty"`
	Hash   string  `json:"hash,omitempty"` // what the log calls the key
	ID     string  `json:"id,omitempty"`   // proxy.KeyPair.Value of it
}

// A TopQuery filters the limits whose keys are returned; empty fields match all.
type TopQuery struct {
	Route, Limit string
	Minutes      int // the last minutes; all if 0
	N            int // keys per limit; 20 if 0
}

// A Top is the keys with most requests and most refusals.
type Top struct {
	Minutes int          `json:"minutes"`
	Limits  []TopLimit   `json:"limits"`
	Nodes   []NodeAnswer `json:"nodes"` // that were asked, and what those said that told nothing
}

// A TopLimit is the top keys of one limit.
type TopLimit struct {
	Route    string  `json:"route"`
	Limit    string  `json:"limit"`
	Key      string  `json:"key"` // its name
	Mode     string  `json:"mode"`
	Requests TopList `json:"requests"` // the keys with most requests
	Refused  TopList `json:"refused"`  // the keys with most refusals
}

// A TopList is a list of keys, in descending order.
type TopList struct {
	Total int64    `json:"total"` // requests of all keys
	Floor int64    `json:"floor"` // upper bound for a key that is not listed
	Keys  []TopKey `json:"keys"`
}

// A TopKey is a key with at most Count requests, and at least Count - Error.
type TopKey struct {
	Masked string `json:"masked"`
	Hash   string `json:"hash"`
	ID     string `json:"id"`
	Count  int64  `json:"count"`
	Error  int64  `json:"error"`
}

// Upstreams are the upstreams of a configuration, and the health of their targets on each
// node.
type Upstreams struct {
	Upstreams []Upstream   `json:"upstreams"` // by name
	Nodes     []NodeAnswer `json:"nodes"`     // that were asked, and what those said that told nothing
}

// An Upstream is one upstream. Its counts are the sums of all nodes, each since its start.
type Upstream struct {
	Name           string   `json:"name"`
	Echo           bool     `json:"echo,omitempty"` // the built-in upstream, with one target
	Routes         []string `json:"routes"`         // routes that forward to it
	Balance        string   `json:"balance"`
	Protocol       string   `json:"protocol"`
	MaxConnections int      `json:"max_connections,omitempty"` // concurrent requests to a target; 0 for no limit
	Queue          int      `json:"queue,omitempty"`           // maximum number of waiting requests on each node
	Waiting        int      `json:"waiting"`                   // waiting requests
	Retries        int      `json:"retries,omitempty"`         // further targets for one request
	Retried        int64    `json:"retried"`                   // number of retries
	Checked        string   `json:"checked,omitempty"`         // path of the active health check; empty for none
	Targets        []Target `json:"targets"`
}

// A Target is one server of an upstream.
type Target struct {
	Target string `json:"target"` // its URL
	Weight int    `json:"weight"`
	// State is the worst state on any node: healthy, slow_start, probing, ejected,
	// unhealthy.
	State    string `json:"state"`
	InFlight int    `json:"in_flight"`
	// Requests is the number of requests for which this was the last target, Errors the
	// number of those that failed because of the target or the connection to it, and
	// Results the number by result.
	Requests int64            `json:"requests"`
	Errors   int64            `json:"errors"`
	Results  map[string]int64 `json:"results"`
	Nodes    []TargetNode     `json:"nodes"`
}

// A TargetNode is the state of a target on one node.
type TargetNode struct {
	Node           string    `json:"node"`
	State          string    `json:"state"`
	FailedConnects int       `json:"failed_connects,omitempty"` // in a row
	FailedChecks   int       `json:"failed_checks,omitempty"`   // in a row
	EjectedUntil   time.Time `json:"ejected_until,omitzero"`    // by that node's clock
	Share          float64   `json:"share"`                     // share of its full weight, 0 to 1
	InFlight       int       `json:"in_flight"`
	Requests       int64     `json:"requests"`
	Errors         int64     `json:"errors"`
}

// An AuditQuery selects a page of the audit trail.
type AuditQuery struct {
	Before string // id of an entry; empty for the newest
	N      int    // 100 when 0, and 500 at most
}

// An Audit is a page of the audit trail, newest first.
type Audit struct {
	Entries []AuditEntry `json:"entries"`
	Next    string       `json:"next,omitempty"` // Before of the next page; empty at the end
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
	Hash    string    `json:"hash,omitempty"`   // what the log calls it
	Limits  []string  `json:"limits,omitempty"` // ROUTE.LIMIT
	For     string    `json:"for,omitempty"`    // of a ban
	Permits int64     `json:"permits,omitempty"`
	OneNode bool      `json:"one_node,omitempty"` // the change was made on that node only
	Detail  string    `json:"detail,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Error   string    `json:"error,omitempty"` // why it was not done
}
