package admin

import (
	"time"

	"github.com/weir-proxy/weir/proxy/config"
)

// What follows is what the API answers with, field for field as in its JSON. Servers
// fill it in, and a Client reads the same types.

// A Reloaded is what a reload did.
type Reloaded struct {
	Generation int64  `json:"generation"`
	Hash       string `json:"hash"`
	Changed    bool   `json:"changed"` // false: the files say what is served already
}

// A Leadership is who leads, and what the leader's tasks came to.
type Leadership struct {
	Self  string    `json:"self"` // the node that says so
	Node  string    `json:"node"` // empty while nobody leads
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

// Nodes are all nodes that live.
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
	Drift      bool      `json:"drift"` // it serves something else than was taken up last
}

// Statistics are what happened, minute by minute, all nodes together.
type Statistics struct {
	Minutes []Minute `json:"minutes"` // oldest first; without those in which nothing happened
}

// A Minute is what happened in one.
type Minute struct {
	At     time.Time     `json:"at"` // when it began
	Routes []RouteMinute `json:"routes"`
}

// A RouteMinute is what happened to the requests of a route.
type RouteMinute struct {
	Route    string        `json:"route"`
	Requests int64         `json:"requests"`
	Limits   []LimitMinute `json:"limits,omitempty"`
}

// A LimitMinute is what a limit said.
type LimitMinute struct {
	Limit         string `json:"limit"`
	Allowed       int64  `json:"allowed"`
	Refused       int64  `json:"refused"`
	ShadowRefused int64  `json:"shadow_refused"`
	Unavailable   int64  `json:"unavailable"`
}

// A Plan is what would change if a running weir served something else.
type Plan struct {
	Generation int64           `json:"generation"` // that is served
	Changes    []config.Change `json:"changes"`
	Restart    string          `json:"restart,omitempty"` // what only a restart can change
	Refused    []LimitRefusal  `json:"refused"`           // limits that would refuse keys now
	Looked     int             `json:"looked"`            // at so many counts
	Whole      bool            `json:"whole"`             // these are all that there are
	Unknown    string          `json:"unknown,omitempty"` // why counts were not looked at
}

// A LimitRefusal is a limit that would refuse some of the keys that have counts now.
type LimitRefusal struct {
	Limit string   `json:"limit"` // ROUTE.LIMIT:WINDOW
	Keys  int      `json:"keys"`
	Named []string `json:"named"` // beginnings of some of their hashes, as in the log
}

// A Pushed is what came of a push, or of trying one.
type Pushed struct {
	Generation int64           `json:"generation"`
	Hash       string          `json:"hash"`
	Nodes      []NodeAnswer    `json:"nodes"` // what each node serves by now
	Changed    bool            `json:"changed"`
	Restored   bool            `json:"restored,omitempty"` // redis had lost it and has it again
	DryRun     bool            `json:"dry_run,omitempty"`
	Changes    []config.Change `json:"changes"`
	Warnings   []string        `json:"warnings,omitempty"`
}

// A NodeAnswer is what one node said of a push.
type NodeAnswer struct {
	Node string `json:"node"`
	Said string `json:"said"` // ok, or why not; empty while it is silent
}

// A History is what was pushed.
type History struct {
	History []Entry `json:"history"` // the last first, at most 20
}

// An Entry is one configuration that was pushed.
type Entry struct {
	Generation int64     `json:"generation"`
	Hash       string    `json:"hash"`
	Author     string    `json:"author"`
	Node       string    `json:"node"` // that was asked to push
	At         time.Time `json:"at"`
	From       int64     `json:"from,omitempty"` // not 0: the generation that was gone back to
}

// A Diff is what a generation changed in the files, against the one before it.
type Diff struct {
	Entry
	Diff string `json:"diff"` // unified
}

// A Health is what GET /readyz tells.
type Health struct {
	Checks map[string]string `json:"checks"` // "ok", or what is wrong
	Status string            `json:"status"` // ok, degraded or not ready
}
