package admin

import "time"

// A Config is the configuration that a node serves.
type Config struct {
	Node       string `json:"node"`
	Generation int64  `json:"generation"`
	Hash       string `json:"hash"`
	// Effective is YAML with all defaults filled in. Secrets are hidden, and the values
	// of lists and overrides hashed.
	Effective string `json:"effective"`
}

// Routes are those of the configuration that a node serves.
type Routes struct {
	Generation int64   `json:"generation"`
	Routes     []Route `json:"routes"` // in the order of the file
}

// A Route is one of them.
type Route struct {
	Name     string            `json:"name"`
	Position string            `json:"position"` // file:line:column
	Host     string            `json:"host,omitempty"`
	Methods  []string          `json:"methods,omitempty"` // none: all
	Path     string            `json:"path"`
	Headers  map[string]string `json:"headers,omitempty"` // that are matched
	Query    map[string]string `json:"query,omitempty"`
	Upstream string            `json:"upstream,omitempty"`
	Redirect string            `json:"redirect,omitempty"`
	Respond  int               `json:"respond,omitempty"` // the status of its fixed answer
	Limits   []string          `json:"limits"`            // by name
	Lists    []string          `json:"lists,omitempty"`
	NewKeys  string            `json:"new_keys,omitempty"` // how many a client may send: 20/1h
}

// Limits are those of all routes.
type Limits struct {
	Generation int64   `json:"generation"`
	Limits     []Limit `json:"limits"` // in the order of the file
}

// A Limit is one of a route.
type Limit struct {
	Route          string   `json:"route"`
	Name           string   `json:"name"`
	Position       string   `json:"position"`
	Key            string   `json:"key"`                // its name
	Parts          []string `json:"parts,omitempty"`    // of a key that is joined: their names
	Distinct       string   `json:"distinct,omitempty"` // name of the key whose values are counted
	Rates          []string `json:"rates"`              // 5/1h
	Algorithm      string   `json:"algorithm"`
	Burst          int64    `json:"burst,omitempty"`
	Mode           string   `json:"mode"`  // enforce, shadow or off
	Scope          string   `json:"scope"` // overall or per_client
	OnStoreFailure string   `json:"on_store_failure"`
	Exposed        bool     `json:"expose"`
	Overrides      int      `json:"overrides,omitempty"` // keys with rates of their own
	Redisson       string   `json:"redisson,omitempty"`  // the limiter that Java programs share
	Wait           string   `json:"wait,omitempty"`
}

// A DecisionQuery says which requests are looked for; fields that are empty match all.
type DecisionQuery struct {
	RequestID string
	Route     string
	Limit     string
	Outcome   string // as Decision.Outcome
	Key       string // hash or id of a key
	Before    time.Time
	N         int // 100 when 0
}

// Decisions are what was decided about requests of the last minutes, the last first.
type Decisions struct {
	Decisions []Decision `json:"decisions"`
	// Nodes are all that were asked, and what those said that told nothing.
	Nodes []NodeAnswer `json:"nodes"`
}

// A Decision is what was decided about one request.
type Decision struct {
	Node      string    `json:"node"`
	RequestID string    `json:"request_id"`
	At        time.Time `json:"at"` // when it came
	Route     string    `json:"route,omitempty"`
	Method    string    `json:"method"`
	Path      string    `json:"path"` // as the log shows it
	Status    int       `json:"status"`
	// Outcome is allowed, refused, shadow_refused (it passed, and would not have if all
	// limits were enforced), or rejected, by something else than a limit.
	Outcome  string          `json:"outcome"`
	TookMS   float64         `json:"took_ms"`
	Limits   []DecisionLimit `json:"limits"`
	More     int             `json:"more,omitempty"` // limits beyond those
	List     string          `json:"list,omitempty"` // the one that decided
	NewKeys  string          `json:"new_keys,omitempty"`
	Fallback string          `json:"fallback,omitempty"` // the policy that decided while the store could not
	Upstream string          `json:"upstream,omitempty"`
	Error    string          `json:"error,omitempty"`
	Repeated bool            `json:"repeated,omitempty"`  // it repeats a request that was counted
	Waited   bool            `json:"waited,omitempty"`    // it waited for a permit
	Exempt   bool            `json:"exempt,omitempty"`    // no limit is asked about it
	BanBegan bool            `json:"ban_began,omitempty"` // by this refusal
}

// A DecisionLimit is what one rate said of a request.
type DecisionLimit struct {
	Limit  string  `json:"limit"`
	Rate   string  `json:"rate"`   // as the log calls it: phone-1h
	Result string  `json:"result"` // allowed, refused, shadow_refused or not_asked
	Banned bool    `json:"banned,omitempty"`
	Left   *int64  `json:"left,omitempty"` // absent where it is not known
	WaitMS float64 `json:"wait_ms,omitempty"`
	Key    string  `json:"key"` // its name
	Masked string  `json:"masked,omitempty"`
	Hash   string  `json:"hash,omitempty"` // what the log calls the key
	ID     string  `json:"id,omitempty"`   // proxy.KeyPair.Value of it
}

// A TopQuery says of which limits the keys are asked for; fields that are empty match
// all.
type TopQuery struct {
	Route, Limit string
	Minutes      int // the last so many; all that are known when 0
	N            int // keys of a limit; 20 when 0
}

// A Top is the keys that send most requests, and those that are refused most.
type Top struct {
	Minutes int          `json:"minutes"`
	Limits  []TopLimit   `json:"limits"`
	Nodes   []NodeAnswer `json:"nodes"` // that were asked, and what those said that told nothing
}

// A TopLimit is the keys of one limit.
type TopLimit struct {
	Route    string  `json:"route"`
	Limit    string  `json:"limit"`
	Key      string  `json:"key"` // its name
	Mode     string  `json:"mode"`
	Requests TopList `json:"requests"` // the keys with most requests
	Refused  TopList `json:"refused"`  // those refused most
}

// A TopList is keys, those with the most first.
type TopList struct {
	Total int64    `json:"total"` // requests of all keys
	Floor int64    `json:"floor"` // how many a key may have had that is not listed
	Keys  []TopKey `json:"keys"`
}

// A TopKey is a key that had at most Count requests, and at least Count less Error.
type TopKey struct {
	Masked string `json:"masked"`
	Hash   string `json:"hash"`
	ID     string `json:"id"`
	Count  int64  `json:"count"`
	Error  int64  `json:"error"`
}

// Upstreams are those that are served, and how their targets fare on each node.
type Upstreams struct {
	Upstreams []Upstream   `json:"upstreams"` // by name
	Nodes     []NodeAnswer `json:"nodes"`     // that were asked, and what those said that told nothing
}

// An Upstream is one of them. Its counts are those of all nodes together, each since it
// started.
type Upstream struct {
	Name           string   `json:"name"`
	Echo           bool     `json:"echo,omitempty"` // built in; it has one target
	Routes         []string `json:"routes"`         // that forward to it
	Balance        string   `json:"balance"`
	Protocol       string   `json:"protocol"`
	MaxConnections int      `json:"max_connections,omitempty"` // requests that a target works on at a time; 0: any number
	Queue          int      `json:"queue,omitempty"`           // requests that may wait then, on each node
	Waiting        int      `json:"waiting"`                   // requests that do
	Retries        int      `json:"retries,omitempty"`         // more targets that one request may be taken to
	Retried        int64    `json:"retried"`                   // requests that were taken to one more
	Checked        string   `json:"checked,omitempty"`         // the path by which health is checked; empty: it is not
	Targets        []Target `json:"targets"`
}

// A Target is one server of an upstream.
type Target struct {
	Target string `json:"target"` // its URL
	Weight int    `json:"weight"`
	// State is the worst that a node says: healthy, slow_start, probing, ejected, unhealthy.
	State    string `json:"state"`
	InFlight int    `json:"in_flight"`
	// Requests had this target as the last one asked; Errors are those of them for which
	// it is to blame, or the way to it, and Results all of them by what came of it.
	Requests int64            `json:"requests"`
	Errors   int64            `json:"errors"`
	Results  map[string]int64 `json:"results"`
	Nodes    []TargetNode     `json:"nodes"`
}

// A TargetNode is how a target fares on one node.
type TargetNode struct {
	Node           string    `json:"node"`
	State          string    `json:"state"`
	FailedConnects int       `json:"failed_connects,omitempty"` // in a row
	FailedChecks   int       `json:"failed_checks,omitempty"`   // in a row
	EjectedUntil   time.Time `json:"ejected_until,omitzero"`    // by that node's clock
	Share          float64   `json:"share"`                     // of what it gets in good health: 0 to 1
	InFlight       int       `json:"in_flight"`
	Requests       int64     `json:"requests"`
	Errors         int64     `json:"errors"`
}

// An AuditQuery says which part of the audit trail is asked for.
type AuditQuery struct {
	Before string // the id of an entry; empty for the end
	N      int    // 100 when 0, and 500 at most
}

// An Audit is a part of what operators did, the last first.
type Audit struct {
	Entries []AuditEntry `json:"entries"`
	Next    string       `json:"next,omitempty"` // what to go on before; empty at the end
}

// An AuditEntry is what one operator did.
type AuditEntry struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Node    string    `json:"node"`
	Who     string    `json:"who"`               // the name of a token, or local
	Address string    `json:"address,omitempty"` // of the operator's connection
	Action  string    `json:"action"`
	Masked  string    `json:"masked,omitempty"` // the key, as people are shown it
	Hash    string    `json:"hash,omitempty"`   // what the log calls it
	Limits  []string  `json:"limits,omitempty"` // ROUTE.LIMIT
	For     string    `json:"for,omitempty"`    // of a ban
	Permits int64     `json:"permits,omitempty"`
	OneNode bool      `json:"one_node,omitempty"` // it was done on that node alone
	Detail  string    `json:"detail,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Error   string    `json:"error,omitempty"` // why it was not done
}
