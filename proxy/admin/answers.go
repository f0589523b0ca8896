package admin

import (
	"time"

	"github.com/weir-proxy/weir/proxy/config"
)

// The types of the API's responses follow, with the fields of their JSON. Servers fill them in, and
// a Client decodes into the same types.

// A Reloaded is the result of a reload.
type Reloaded struct {
	Generation int64  `json:"generation"`
	Hash       string `json:"hash"`
	Changed    bool   `json:"changed"` // false if the files have not changed
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

// Nodes are all live nodes.
type Nodes struct {
	Nodes []Member `json:"nodes"` // by id
	Self  string   `json:"self"`  // the node that responds
	// Lost are the nodes that ended without stopping, or were cut off, in the last hour; the latest first.
	Lost []Member `json:"lost"`
	// Configurations are those that are served, each once: the one of most nodes first.
	Configurations []NodeGroup `json:"configurations"`
}

// A NodeGroup is a configuration, with the nodes that serve it.
type NodeGroup struct {
	Hash       string   `json:"hash"`
	Generation int64    `json:"generation"`
	Source     string   `json:"source"` // redis if it was pushed, file if it is their own
	Nodes      []string `json:"nodes"`
	// Changes are what makes it differ from the first configuration; Unknown is why they are not known.
	Changes []config.Change `json:"changes,omitempty"`
	Unknown string          `json:"unknown,omitempty"`
}

// Differences are the changes as lines; without any, one line says why.
func (g NodeGroup) Differences() (lines []string) {
	for _, c := range g.Changes {
		lines = append(lines, c.String())
	}
	switch {
	case g.Unknown != "":
		return []string{"what differs is not known: " + g.Unknown}
	case lines == nil:
		return []string{"no limit, route or section differs: comments do, or the contents of files that it names"}
	}
	return lines
}

// A Member is one node.
type Member struct {
	ID         string    `json:"id"`
	Address    string    `json:"address"` // of its admin listener
	Version    string    `json:"version"`
	Source     string    `json:"source"` // of its configuration: file or redis
	Hash       string    `json:"hash"`   // of the configuration it serves
	Generation int64     `json:"generation"`
	Started    time.Time `json:"started"`
	Seen       time.Time `json:"seen"`
	Drift      bool      `json:"drift"`             // it serves another configuration than most nodes do
	Problem    string    `json:"problem,omitempty"` // why it cannot read the pushed configuration
}

// Statistics are the counts of all nodes by minute.
type Statistics struct {
	Minutes []Minute `json:"minutes"` // oldest first, without minutes that have no requests; the last may not be over
	// Last has the counts of 60 seconds, which ended at most six seconds ago.
	Last Minute `json:"last"`
}

// A Minute has the counts of one minute.
type Minute struct {
	At     time.Time     `json:"at"` // when it started
	Routes []RouteMinute `json:"routes"`
}

// A RouteMinute has the requests of a route by their outcomes, and the decisions of its limits. Requests
// without a route have the name none.
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
	Limit         string `json:"limit"`
	Allowed       int64  `json:"allowed"`
	Refused       int64  `json:"refused"`
	ShadowRefused int64  `json:"shadow_refused"`
	Unavailable   int64  `json:"unavailable"`
}

// A Plan is what would change if a running weir served another configuration.
type Plan struct {
	Generation int64           `json:"generation"` // the current generation
	Changes    []config.Change `json:"changes"`
	Restart    string          `json:"restart,omitempty"` // changes that require a restart
	Refused    []LimitRefusal  `json:"refused"`           // changed limits that would refuse keys now
	Looked     int             `json:"looked"`            // number of counts evaluated
	Whole      bool            `json:"whole"`             // all counts were evaluated
	Unknown    string          `json:"unknown,omitempty"` // why counts were not evaluated
	Warning    string          `json:"warning,omitempty"` // about Redis, if it may evict counts
}

// A LimitRefusal is a limit that would refuse some of the keys with counts.
type LimitRefusal struct {
	Limit string   `json:"limit"` // ROUTE.LIMIT:WINDOW
	Key   string   `json:"key"`   // the name of its key
	Keys  int      `json:"keys"`
	Named []string `json:"named"` // the hashes of some of them, as in the log
}

// A Pushed is the result of a push or of its dry run.
type Pushed struct {
	Generation int64           `json:"generation"`
	Hash       string          `json:"hash"`
	Nodes      []NodeAnswer    `json:"nodes"` // what each node serves
	Changed    bool            `json:"changed"`
	Restored   bool            `json:"restored,omitempty"` // redis had lost the configuration; it was published again
	DryRun     bool            `json:"dry_run,omitempty"`
	From       int64           `json:"from,omitempty"` // for a rollback, the restored generation
	Changes    []config.Change `json:"changes"`
	Warnings   []string        `json:"warnings,omitempty"`
}

// A NodeAnswer is the answer of one node.
type NodeAnswer struct {
	Node string `json:"node"`
	Said string `json:"said"` // ok, or an error; empty if the node has not answered
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

// A Diff is the difference between a generation and the previous one.
type Diff struct {
	Entry
	Changes []config.Change `json:"changes"` // limit by limit; empty if the files can no longer be read
	Diff    string          `json:"diff"`    // of the files, in unified format
}

// A Health is the response of GET /readyz.
type Health struct {
	Checks map[string]string `json:"checks"` // "ok", or what is wrong
	Status string            `json:"status"` // ok, degraded or not ready
}
