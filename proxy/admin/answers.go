package admin

import (
	"time"

	"github.com/weir-proxy/weir/proxy/config"
)

// The responses of the API, field for field as in JSON. Servers and Client use the same
// types.

// A Reloaded is the result of a reload.
type Reloaded struct {
	Generation int64  `json:"generation"`
	Hash       string `json:"hash"`
	Changed    bool   `json:"changed"` // false if the configuration is unchanged
}

// A Leadership is the current leader and the runs of its tasks.
type Leadership struct {
	Self  string    `json:"self"` // the node that says so
	Node  string    `json:"node"` // empty if there is no leader
	Since time.Time `json:"since,omitzero"`
	Token int64     `json:"token,omitempty"`
	Tasks []TaskRun `json:"tasks"` // by name; without those that have not run yet
}

// A TaskRun is the last run of a task of the leader.
type TaskRun struct {
	Task  string    `json:"task"`
	Node  string    `json:"node"`
	At    time.Time `json:"at"` // when it began
	Took  float64   `json:"took_ms"`
	Did   string    `json:"did,omitempty"`
	Error string    `json:"error,omitempty"`
	Next  time.Time `json:"next"` // when it begins again
}

// Nodes lists the live nodes.
type Nodes struct {
	Nodes []Member `json:"nodes"` // by id
	Self  string   `json:"self"`  // the node that says so
}

// A Member is one node.
type Member struct {
	ID         string    `json:"id"`
	Address    string    `json:"address"` // of its admin listener
	Version    string    `json:"version"`
	Source     string    `json:"source"` // of its configuration: file or redis
	Hash       string    `json:"hash"`   // of the configuration that it serves
	Generation int64     `json:"generation"`
	Started    time.Time `json:"started"`
	Seen       time.Time `json:"seen"`
	Drift      bool      `json:"drift"` // its configuration is not the newest
}

// Statistics are counts per minute, of all nodes together.
type Statistics struct {
	Minutes []Minute `json:"minutes"` // oldest first; without those in which nothing happened
}

// A Minute is the statistics of one minute.
type Minute struct {
	At     time.Time     `json:"at"` // when it began
	Routes []RouteMinute `json:"routes"`
}

// A RouteMinute is the statistics of a route.
type RouteMinute struct {
	Route    string        `json:"route"`
	Requests int64         `json:"requests"`
	Limits   []LimitMinute `json:"limits,omitempty"`
}

// A LimitMinute is the decisions of a limit.
type LimitMinute struct {
	Limit         string `json:"limit"`
	Allowed       int64  `json:"allowed"`
	Refused       int64  `json:"refused"`
	ShadowRefused int64  `json:"shadow_refused"`
	Unavailable   int64  `json:"unavailable"`
}

// A Plan is what would change if a node served another configuration.
type Plan struct {
	Generation int64           `json:"generation"` // current generation
	Changes    []config.Change `json:"changes"`
	Restart    string          `json:"restart,omitempty"` // changed sections that require a restart
	Refused    []LimitRefusal  `json:"refused"`           // limits that would refuse keys now
	Looked     int             `json:"looked"`            // number of counts that were peeked
	Whole      bool            `json:"whole"`             // false if these are a sample
	Unknown    string          `json:"unknown,omitempty"` // why counts were not peeked
}

// A LimitRefusal is a limit that would refuse some of the keys with counts.
type LimitRefusal struct {
	Limit string   `json:"limit"` // ROUTE.LIMIT:WINDOW
	Keys  int      `json:"keys"`
	Named []string `json:"named"` // truncated hashes of some of them, as in the log
}

// A Pushed is the result of a push or a dry run.
type Pushed struct {
	Generation int64           `json:"generation"`
	Hash       string          `json:"hash"`
	Nodes      []NodeAnswer    `json:"nodes"` // what each node serves
	Changed    bool            `json:"changed"`
	Restored   bool            `json:"restored,omitempty"` // it was published again after Redis had lost it
	DryRun     bool            `json:"dry_run,omitempty"`
	Changes    []config.Change `json:"changes"`
	Warnings   []string        `json:"warnings,omitempty"`
}

// A NodeAnswer is the answer of one node to a push.
type NodeAnswer struct {
	Node string `json:"node"`
	Said string `json:"said"` // ok, or the error; empty if it has not answered
}

// A History is the list of pushes.
type History struct {
	History []Entry `json:"history"` // newest first, at most 20
}

// An Entry is one pushed configuration.
type Entry struct {
	Generation int64     `json:"generation"`
	Hash       string    `json:"hash"`
	Author     string    `json:"author"`
	Node       string    `json:"node"` // the node that received the push
	At         time.Time `json:"at"`
	From       int64     `json:"from,omitempty"` // for a rollback, the restored generation
}

// A Diff is the changes of files in a generation.
type Diff struct {
	Entry
	Diff string `json:"diff"` // in unified format
}

// A Health is the response of GET /readyz.
type Health struct {
	Checks map[string]string `json:"checks"` // "ok", or what is wrong
	Status string            `json:"status"` // ok, degraded or not ready
}
