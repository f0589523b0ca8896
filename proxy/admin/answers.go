package admin

import (
	"context"
	"io"
	"net/http"
	"reflect"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// The types of the API's responses follow that contain changes of the configuration; all others are in package
// view. Servers fill them in, and a Client decodes into the same types.

// A Reloaded is the result of a reload.
type Reloaded struct {
	Generation int64  `json:"generation"`
	Hash       string `json:"hash"`
	Changed    bool   `json:"changed"` // false if the files have not changed
}

// Nodes are all live nodes.
type Nodes struct {
	Nodes []view.Member `json:"nodes"` // by id
	Self  string        `json:"self"`  // the node that responds
	// Lost are the nodes that ended without stopping, or were cut off, in the last hour; the latest first.
	Lost []view.Member `json:"lost"`
	// Configurations are those that are served, each once: the one of most nodes first.
	Configurations []NodeGroup `json:"configurations"`
	// Awaited are the nodes that have not answered a push through the node that responds, which waits for them.
	Awaited []string `json:"awaited,omitempty"`
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

// A Plan is what would change if a running weir served another configuration.
type Plan struct {
	Generation int64           `json:"generation"` // the current generation
	Changes    []config.Change `json:"changes"`
	Restart    string          `json:"restart,omitempty"`  // changes that require a restart
	Refused    []LimitRefusal  `json:"refused"`            // changed limits that would refuse keys now
	Looked     int             `json:"looked"`             // number of counts evaluated
	Whole      bool            `json:"whole"`              // all counts were evaluated of limits that refuse by the count alone; see proxy.Prepared.ChangedLimits
	Unknown    string          `json:"unknown,omitempty"`  // why counts were not evaluated
	Warning    string          `json:"warning,omitempty"`  // about Redis, if it may evict counts
	Warnings   []string        `json:"warnings,omitempty"` // about the configuration
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
	Generation int64             `json:"generation"`
	Hash       string            `json:"hash"`
	Nodes      []view.NodeAnswer `json:"nodes"` // what each node serves
	Changed    bool              `json:"changed"`
	Restored   bool              `json:"restored,omitempty"` // redis had lost the configuration; it was published again
	DryRun     bool              `json:"dry_run,omitempty"`
	From       int64             `json:"from,omitempty"` // for a rollback, the restored generation
	Changes    []config.Change   `json:"changes"`
	Warnings   []string          `json:"warnings,omitempty"`
}

// A History is the list of pushes.
type History struct {
	History []view.Entry `json:"history"` // newest first, at most 20
}

// A Diff is the difference between a generation and the previous one.
type Diff struct {
	view.Entry
	Changes []config.Change `json:"changes"` // limit by limit; all of the oldest generation that is kept
	Diff    string          `json:"diff"`    // of the files, in unified format
}

// A Health is the response of GET /readyz.
type Health struct {
	// Ready reports whether requests should be sent to this proxy. A proxy whose store is
	// unreachable remains ready: its limits follow on_store_failure.
	Ready  bool              `json:"-"`
	Checks map[string]string `json:"checks"` // "ok", or what is wrong
	Status string            `json:"status"` // ok, degraded or not ready
	// CallsBySlot are the masters of a Redis Cluster that this node sends a script call for each slot, not one for all.
	CallsBySlot []string `json:"calls_by_slot,omitempty"`
}

// A Conversion tells of limits with return_on what became of the requests that they count.
type Conversion struct {
	Limits []sends.LimitCounts `json:"limits"`
	Nodes  []view.NodeAnswer   `json:"nodes"` // the nodes that were asked, with the errors of those that did not reply
}

// A SimulateQuery is an access log to replay with the current configuration, and optionally with
// another one.
type SimulateQuery struct {
	Log    io.Reader // may be compressed by gzip; nil means the access log of the node
	Other  string    // YAML of another configuration; empty for none
	Host   string    // host of requests whose log has none
	Fields []string  // names of JSON fields: WHAT=NAME
	Top    int       // number of most refused keys of each limit; 10 if 0
}

// A Simulation is the result of replaying an access log.
type Simulation struct {
	Node string `json:"node"`
	view.LogCounts
	TookMS int64 `json:"took_ms"`
	// Generation is the current configuration and Result its result; Against is the result of the
	// other one, if there is one.
	Generation int64              `json:"generation"`
	Result     proxy.ReplayTally  `json:"result"`
	Against    *proxy.ReplayTally `json:"against,omitempty"`
	// Differences compares the routes and limits of both.
	Differences []view.SimulatedDifference `json:"differences,omitempty"`
	Notes       []string                   `json:"notes"` // limitations of the result, and what to log to avoid them
}

// simulate returns the endpoint that replays an access log. It changes nothing, so the role read
// suffices.
func (o Options) simulate() endpoint {
	return endpoint{
		method: http.MethodPost, path: "/simulate", role: Read, form: true, maxBody: MaxLog + maxFields, request: reflect.TypeFor[SimulateForm](), response: reflect.TypeFor[Simulation](),
		summary: "What this node's configuration, and another one beside it, would have done with the requests of an access log; it takes nothing. One is replayed at a time.",
		handle: func(w http.ResponseWriter, r *http.Request) {
			if checkQuery(w, r, nil) {
				respond(w, http.StatusServiceUnavailable, func() (Simulation, error) { return o.replay(w, r) })
			}
		},
	}
}

func (o Options) replay(w http.ResponseWriter, r *http.Request) (Simulation, error) {
	u, err := ReadUpload(w, r)
	if err != nil {
		u.Close()
		return Simulation{}, err
	}
	defer u.Close()
	return o.Replay(r.Context(), u)
}

// Replay replays an uploaded log. more are names of further parts of the form besides those of
// SimulateForm.
func (o Options) Replay(ctx context.Context, u *Upload, more ...string) (Simulation, error) {
	q, err := u.Query(more...)
	if err != nil {
		return Simulation{}, err
	}
	s, err := o.Simulate(ctx, q)
	if err == nil {
		err = u.checkEnd()
	}
	return s, err
}
