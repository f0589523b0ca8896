package view

import "time"

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
