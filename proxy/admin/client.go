package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

const (
	// requestTimeout bounds a request to a running weir, which may have to wait for other nodes.
	requestTimeout = time.Minute
	// maxResponse is the maximum length of a response in bytes.
	maxResponse = 64 << 20
)

// A Client is a client of the admin API. Its methods, and Get and Post, return a *Problem if the API responds with
// one; after other errors the outcome is unknown. It is safe for concurrent use.
type Client struct {
	Address string       // address of the admin listener: HOST:PORT or a URL
	Flag    string       // with which an operator names it
	Token   string       // may be empty
	HTTP    *http.Client // nil means http.DefaultClient
}

// Healthz returns an error if the node is not alive.
func (c Client) Healthz(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base()+"/healthz", nil)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	answer, err := c.client().Do(r)
	if err != nil {
		return c.silent(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("healthcheck: %s", answer.Status)
	}
	return nil
}

// Get returns what the API has at path, such as /routes.
func Get[A any](ctx context.Context, c Client, path string) (A, error) {
	return send[A](ctx, c, http.MethodGet, path, nil)
}

// Post sends body as JSON to path, and returns the response.
func Post[A any](ctx context.Context, c Client, path string, body any) (none A, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return none, fmt.Errorf("ask %s: %w", c.base(), err)
	}
	return send[A](ctx, c, http.MethodPost, path, text)
}

// send sends one request, with a body of JSON.
func send[A any](ctx context.Context, c Client, method, path string, body []byte) (into A, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, c.base()+apiRoot+path, bytes.NewReader(body)) // #nosec G704 -- the operator names the host
	if err != nil {
		return into, fmt.Errorf("ask %s: %w", c.base(), err)
	}
	r.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	connected := false
	trace := httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	answer, err := c.client().Do(r.WithContext(httptrace.WithClientTrace(ctx, &trace))) // #nosec G704 -- as above
	switch {
	case err != nil && connected && method != http.MethodGet:
		return into, fmt.Errorf("the answer of %s is lost: %w; what was asked for may have been done: look before you repeat it", c.base(), errors.Unwrap(err))
	case err != nil:
		return into, c.silent(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxResponse))
	if err != nil {
		return into, fmt.Errorf("ask %s: %w", c.base(), err)
	}
	if answer.StatusCode != http.StatusOK {
		p := &Problem{}
		if json.Unmarshal(text, p) != nil || p.Detail == "" { // the listener for requests answers so too
			return into, fmt.Errorf("a running weir answers %s; is this its admin listener?", answer.Status)
		}
		return into, p
	}
	if err := json.Unmarshal(text, &into); err != nil {
		return into, fmt.Errorf("ask %s: answer not understood: %w", c.base(), err)
	}
	return into, nil
}

// silent returns why nothing answers. What err says of the address is left out.
func (c Client) silent(err error) error {
	err = errors.Unwrap(err) // without the URL
	if op, is := errors.AsType[*net.OpError](err); is {
		err = op.Err
	}
	if u, unread := url.Parse(c.base()); unread == nil && u.Port() == "" {
		return fmt.Errorf("no weir answers at %s: %w; write the port of its admin listener, too: %s HOST:PORT", c.base(), err, c.Flag)
	}
	return fmt.Errorf("no weir answers at %s: %w; name its admin listener with %s", c.base(), err, c.Flag)
}

func (c Client) client() *http.Client { return cmp.Or(c.HTTP, http.DefaultClient) }

// base returns the URL prefix of the API. A wildcard address is replaced by localhost.
func (c Client) base() string {
	if strings.Contains(c.Address, "://") {
		return strings.TrimSuffix(c.Address, "/")
	}
	host, port, err := net.SplitHostPort(c.Address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip.IsUnspecified()) {
		return "http://" + net.JoinHostPort("localhost", port)
	}
	return "http://" + strings.TrimSuffix(c.Address, "/")
}

// Change resets, grants, bans or unbans a key, or assigns a plan to it.
func (c Client) Change(ctx context.Context, k view.KeyChange) (view.KeyResult, error) {
	a := KeyAction{KeyQuery: k.KeyQuery, Reason: k.Reason}
	body, known := map[view.KeyAction]any{
		view.KeyReset: a, view.KeyUnban: a, view.KeyUnassign: a,
		view.KeyGrant: KeyGrant{a, k.Permits}, view.KeyBan: KeyBan{a, k.For}, view.KeyAssign: KeyPlan{a, k.Plan, k.For},
	}[k.Action]
	if !known {
		return view.KeyResult{}, fmt.Errorf("there is no action %q", k.Action)
	}
	return Post[view.KeyResult](ctx, c, "/keys/"+string(k.Action), body)
}

// TopOf returns the keys with most requests and with most refusals.
func (c Client) TopOf(ctx context.Context, q view.TopQuery) (view.Top, error) {
	return Get[view.Top](ctx, c, "/top?"+QueryOf(map[string]any{"route": q.Route, "limit": q.Limit, "minutes": q.Minutes, "n": q.N}))
}

// Decisions returns recent decisions of all nodes, newest first.
func (c Client) Decisions(ctx context.Context, q view.DecisionQuery) (view.Decisions, error) {
	before := ""
	if !q.Before.IsZero() {
		before = q.Before.Format(time.RFC3339Nano)
	}
	return Get[view.Decisions](ctx, c, "/decisions?"+QueryOf(map[string]any{
		"request_id": q.RequestID, "route": q.Route, "limit": q.Limit, "outcome": q.Outcome, "key": q.Key, "before": before, "n": q.N,
	}))
}

// QueryOf encodes the parameters, texts and numbers, that are neither empty nor 0.
func QueryOf(parameters map[string]any) string {
	query := url.Values{}
	for name, value := range parameters {
		if value != "" && value != 0 {
			query.Set(name, fmt.Sprint(value))
		}
	}
	return query.Encode()
}

// AuditPage returns actions of operators, newest first.
func (c Client) AuditPage(ctx context.Context, q view.AuditQuery) (view.Audit, error) {
	return Get[view.Audit](ctx, c, "/audit?"+QueryOf(map[string]any{"before": q.Before, "n": q.N}))
}

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
func (g NodeGroup) Differences() []string {
	switch {
	case g.Unknown != "":
		return []string{"what differs is not known: " + g.Unknown}
	case len(g.Changes) == 0:
		return []string{"no limit, route or section differs: comments do, or the contents of files that it names"}
	}
	return view.Each(g.Changes, config.Change.String)
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
	From       int64             `json:"from,omitempty"`   // for a rollback, the restored generation
	Served     string            `json:"served,omitempty"` // and when it was served: 2026-11-29 20:00:00 UTC to 2026-11-29 20:04:00 UTC
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
	Changes []config.Change `json:"changes"`          // limit by limit
	Diff    string          `json:"diff"`             // of the files, in unified format
	Oldest  bool            `json:"oldest,omitempty"` // of those that are kept: what was before is not known, and all of it is told
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
			if readQuery(w, r, nil) {
				respond(w, http.StatusServiceUnavailable, func() (Simulation, error) { return o.replay(w, r) })
			}
		},
	}
}

func (o Options) replay(w http.ResponseWriter, r *http.Request) (Simulation, error) {
	u, err := ReadUpload(w, r)
	defer u.Close()
	if err != nil {
		return Simulation{}, err
	}
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
