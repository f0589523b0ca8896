package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A Replay runs logged requests through the stages of a configuration on a virtual clock: each at
// the time of the log, with the counts of a memory store on that clock. The outcome of a request,
// which decides about refunds, and its end are taken from the log; nothing is forwarded. The counts
// are those that a single Weir with this configuration would have had, as far as the log has the
// data that the configuration needs. A limit or list whose key is not in the log is skipped for
// that request and counted as unknown.
//
// A Replay is not safe for concurrent use. Time never goes back: a request older than the previous
// one is evaluated at the time of the previous one.
type Replay struct {
	proxy      *Proxy
	generation *generation
	overridden map[*route]overriddenKeys
	conditions map[string]config.Match // of the routes, which Weir's own log does not show
	now        time.Time
	host       string
	events     events
	visits     sync.Pool // of *visit
	tally      *tallies
}

// ReplayOptions configure a Replay.
type ReplayOptions struct {
	// Host is the host of requests whose log has none; localhost if empty.
	Host string
	// Top is the number of most refused keys that are reported for each limit.
	Top int
	// MaxKeys and MaxBytes limit the memory for counts, as in limiter.MemoryOptions. If they are 0,
	// the limits of the configured store apply.
	MaxKeys  int
	MaxBytes int64
}

// NewReplay returns a Replay of c. The caller must close it.
func NewReplay(c *config.Config, o ReplayOptions) (*Replay, error) {
	r := &Replay{overridden: map[*route]overriddenKeys{}, conditions: map[string]config.Match{}, host: cmp.Or(o.Host, "localhost")}
	r.visits.New = func() any {
		return &visit{replayed: &replayed{x: *newExchange().(*exchange), header: textproto.MIMEHeader{}}}
	}
	room := limiter.MemoryOptions{MaxKeys: o.MaxKeys, MaxBytes: o.MaxBytes, Clock: r.clock}
	p, err := offline(c, room, func(*generation) error { return nil })
	if err != nil {
		return nil, err
	}
	r.proxy, r.generation = p, p.current.Load()
	r.tally = &tallies{generation: r.generation, topKeys: o.Top, routes: map[string]*RouteTally{}, limits: map[string]*limitTally{}, ReplayTally: ReplayTally{Unmatched: map[string]int64{}}}
	for _, rt := range r.generation.routes {
		for _, l := range rt.Active {
			l.Sends = nil // nobody asks for them
		}
		met := rt.Match
		if met.Scheme == "" && !c.Listen.RedirectHTTPS {
			met.Scheme = "any" // it was not that of another route
		}
		r.overridden[rt], r.conditions[rt.Name] = newOverriddenKeys(rt, &c.Privacy), met
	}
	return r, nil
}

func (r *Replay) clock() time.Time { return r.now }

// Close releases the resources of r.
func (r *Replay) Close() { r.proxy.Close() }

// Request runs the next request through the stages. It does not keep q's strings.
func (r *Replay) Request(q *LoggedRequest) {
	r.advance(q.At)
	v := r.visits.Get().(*visit)
	v.fill(q, r.host, r.conditions[q.Route])
	x := &v.x
	x.began, x.generation, x.in.scheme = r.now, r.generation, cmp.Or(x.in.scheme, r.generation.usualScheme())
	if q.Own && q.Status == http.StatusPermanentRedirect && q.Route == "none" { // by listen.redirect_https
		x.in.scheme = "http"
	}
	v.duration, v.status, v.own, v.failed, v.refunded = q.Took, q.Status, q.Own, q.Failed, q.Refunded
	if v.err = r.runStages(q, x, v); v.err != nil {
		r.finish(v)
		return
	}
	switch {
	case x.Repeated:
	case x.route.MaxWait > 0 && r.startWaiting(v):
		return
	case q.CachedRefusal != "" && r.refusesAgain(x, q.CachedRefusal):
		v.err = r.proxy.admitter.Refuse(context.Background(), &x.Admission, r.proxy.admitter.Store)
	default:
		v.err = r.proxy.admitter.Admit(context.Background(), &x.Admission)
	}
	r.finish(v)
}

// A visit is a request until it has been counted.
type visit struct {
	*replayed
	duration  time.Duration
	status    int
	err       error                   // why a stage refused the request
	waiter    *limiter.Waiter         // nil if it does not wait
	next      time.Time               // of the waiter's next step
	labels    map[*limit.Limit]string // labels of its keys, made before it waits; nil if it does not wait
	refusedBy *limit.Limit            // the limit with an unknown key that refused the request in the log
	own       bool                    // the line is of Weir's own log, and tells which list decided

	failed, refunded bool // as its line says
}

// runStages runs the stages before admit.
func (r *Replay) runStages(q *LoggedRequest, x *exchange, v *visit) error {
	if err := r.resolveRoute(q, x); err != nil {
		x.route = nil // it may have been found nevertheless
		return err
	}
	q.findUnknown(x, r.overridden[x.route])
	r.tally.route(x.route)
	r.tally.lack(q, x)
	if decided, err := v.repeatLog(q); decided {
		return err
	}
	return r.proxy.resolveClaims(context.Background(), x)
}

// resolveRoute determines the route of a request. Of a descriptor the log has no entries, but its route.
func (r *Replay) resolveRoute(q *LoggedRequest, x *exchange) error {
	if q.Listener != EnvoyListener {
		return r.proxy.resolveRoute(r.generation, x)
	}
	for _, of := range r.generation.routes {
		if of.Match.Domain != "" && of.Name == q.Route {
			x.setRoute(of)
			return nil
		}
	}
	return routing.ErrNone
}

// finish counts a request, and settles it at the time of its end.
func (r *Replay) finish(v *visit) {
	x := &v.x
	r.tally.count(r.now, v)
	if v.err != nil {
		r.freeVisit(v)
		return
	}
	x.StopRenewing() // they use the real clock
	x.outcome.result = v.result()
	asks := x.route.RefundOn.Header != "" || len(x.route.refunds) > 0 // what only the line tells
	x.outcome.refund = asks && v.refunded && (v.failed || !x.NeedsRefund(x.settledOutcome()))
	ends := len(x.route.Others) > 0 || x.NeedsRefund(x.settledOutcome())
	switch {
	case !ends:
		r.freeVisit(v)
	case v.duration > 0:
		r.renew(v, r.now.Add(v.duration))
		r.events.add(r.now.Add(v.duration), func() { r.settle(v) })
	default:
		r.settle(v)
	}
}

// settle settles a request at its end.
func (r *Replay) settle(v *visit) {
	ctx := context.Background()
	r.proxy.admitter.SettleOthers(&v.x.Admission, v.x.extracted.keys, v.x.outcome.result.Status)
	r.proxy.admitter.Settle(ctx, &v.x.Admission, v.x.settledOutcome())
	if v.x.Settled.Refunded {
		r.tally.route(v.x.route).Returned++
	}
	r.freeVisit(v)
}

// renew schedules the renewals of the concurrent permits of a request while it is in progress.
func (r *Replay) renew(v *visit, until time.Time) {
	next := r.now.Add(limit.RenewInterval)
	if !next.Before(until) || !v.x.HasConcurrent() {
		return
	}
	r.events.add(next, func() {
		v.x.RenewPermits()
		r.renew(v, until)
	})
}

// result returns the outcome of the request according to the log. If the log has no status of the
// upstream, the outcome is unknown.
func (v *visit) result() upstream.Result {
	switch r := v.x.route; {
	case r.Redirect != nil:
		return upstream.Result{Status: r.Redirect.Status}
	case r.Respond != nil:
		return upstream.Result{Status: r.fixedResponse.Status}
	}
	result := upstream.Result{Target: "log", Status: v.status}
	switch {
	case v.failed && v.status == 0: // it was not sent
		return upstream.Result{}
	case v.status == respond.ClientGone: // as logged by nginx and Weir
		result.Status, result.Kind = 0, upstream.ClientGone
	case v.status == http.StatusGatewayTimeout:
		result.Kind = upstream.Timeout
	case v.failed && v.refunded:
		result.Kind = upstream.ConnectFailed
	}
	if v.failed { // the status is Weir's own
		result.Status = 0
	}
	return result
}

// advance sets the clock, and runs the events that are due until then.
func (r *Replay) advance(to time.Time) {
	for len(r.events) > 0 && !r.events[0].at.After(to) {
		e := r.events[0]
		r.events = r.events[1:]
		r.now = e.at
		e.do()
	}
	if to.After(r.now) {
		r.now = to
	}
}

// Finish runs the ends of all requests in progress and returns the counts. Afterwards r must only
// be closed.
func (r *Replay) Finish() ReplayTally {
	for len(r.events) > 0 {
		r.advance(r.events[0].at)
	}
	out := r.tally.result()
	out.Keys, _ = r.proxy.admitter.Memory.Keys()
	return out
}

// freeVisit makes a visit available for reuse. It must not be used afterwards.
func (r *Replay) freeVisit(v *visit) {
	v.x.reset()
	*v = visit{replayed: v.replayed}
	r.visits.Put(v)
}

// startWaiting begins to take the claims of a request from the wait queue. It reports false if no limit lets
// the request wait. Data of the log is not used after that.
func (r *Replay) startWaiting(v *visit) bool {
	v.waiter = r.proxy.admitter.NewWaiter(&v.x.Admission, func() { r.stepWaiting(v) })
	if v.waiter == nil {
		return false
	}
	v.x.FirstUse = nil // idempotency is not replayed for requests that wait
	v.labels = v.x.labels()
	r.stepWaiting(v)
	return true
}

// stepWaiting continues with a request that waits, until it is decided.
func (r *Replay) stepWaiting(v *visit) {
	w := v.waiter
	next, err := w.Step(context.Background(), r.clock, &v.x.Decision)
	if err == nil && !next.IsZero() {
		v.next = next
		r.events.add(next, func() {
			if v.waiter == w && v.next.Equal(next) { // it has become the head of its queue otherwise
				r.stepWaiting(v)
			}
		})
		return
	}
	v.waiter = nil
	v.err = r.proxy.admitter.Conclude(context.Background(), &v.x.Admission, limit.DecideByStore, err)
	r.finish(v)
	w.Leave()
}

// events are scheduled, ordered by time, and those of the same time as they were added.
type events []event

type event struct {
	at time.Time
	do func()
}

// add schedules do. Most events come after nearly all others.
func (e *events) add(at time.Time, do func()) {
	i, _ := slices.BinarySearchFunc(*e, at, func(other event, at time.Time) int {
		return cmp.Or(other.at.Compare(at), -1)
	})
	*e = slices.Insert(*e, i, event{at, do})
}

// A LoggedRequest is a request as recorded in an access log.
type LoggedRequest struct {
	At   time.Time     // when the request arrived
	Took time.Duration // until the response was sent; 0 if the log has no duration

	Method string
	Host   string // empty if the log has no host
	Target string // path and query as sent
	Proto  string // HTTP/1.1 when empty
	Scheme string // http when empty
	Client netip.Addr
	Status int // 0 if the outcome is unknown
	// Fields are the other values that the log has of the request. A field with an empty value was
	// not sent. Nothing is known of a field that is not listed.
	Fields []LoggedField
	// Body is the complete body if HasBody is true.
	Body    string
	HasBody bool
	// Own reports that the line is of Weir's own log; only then what follows may be set. Route is the route that
	// matched, and Listener what the request came by if it was not to be forwarded. Keys is the field
	// keys, which identifies the keys of the request. Limit is the limit that refused the request, and
	// List the list that decided about it. Repeated reports that the request repeated one that was
	// counted, and Rejected that it was rejected before limits were evaluated. Failed reports that the
	// upstream sent no response: Status is Weir's own, or 0 if no target was tried. Refunded reports that
	// permits of the request were refunded.
	Own                bool
	Route, Listener    string
	Keys, Limit, List  string
	Repeated, Rejected bool
	Failed, Refunded   bool
	// CachedRefusal names the limits whose refusal the store repeated, without evaluating the others.
	CachedRefusal string
	// Redacted reports that the log omits the query and has * for path parameters that are keys, as
	// Weir's own log does.
	Redacted bool
}

// A LoggedField is one value of a request in the log.
type LoggedField struct {
	Origin key.Origin // a header field, a cookie, a query parameter, or a value in the body
	Value  string
}

// knows reports whether the log has the value at o of this request. x must have its route.
func (l *LoggedRequest) knows(o key.Origin, x *exchange) bool {
	switch s := o.Source; {
	case s.IsAddress():
		return l.Client.IsValid()
	case s == key.Host:
		return l.Host != ""
	case s == key.Path:
		return !l.Redacted || x.Param(o.Name) != "*"
	case !s.IsNamed():
		return true
	case !s.IsLogged():
		return false // a log should not contain tokens
	}
	return l.has(o) ||
		o.Source == key.Query && !l.Redacted ||
		o.Source == key.Cookie && l.has(key.HeaderField("Cookie")) ||
		o.Source.IsBody() && l.HasBody
}

func (l *LoggedRequest) has(o key.Origin) bool {
	return slices.ContainsFunc(l.Fields, func(f LoggedField) bool { return f.Origin == o })
}

// A replayed is a request with its exchange, and the parts of its header and body that the log has.
type replayed struct {
	x      exchange
	header textproto.MIMEHeader
	body   literalBody // from the log, or built from the logged fields; its memory is reused for the next request
}

// setField sets a field of the header, unless the log had it before.
func (r *replayed) setField(name, value string) {
	if _, is := r.header[name]; !is {
		r.header[name] = []string{value}
	}
}

// fill sets the exchange from q, whose strings must remain valid until the stages have run. host is
// used if the log has no host. What the route of the line was matched by is as met says, unless the line has it.
func (r *replayed) fill(q *LoggedRequest, host string, met config.Match) {
	x := &r.x
	x.request.Method, x.request.RequestTarget, x.request.Proto, x.in.scheme = q.Method, q.Target, cmp.Or(q.Proto, "HTTP/1.1"), cmp.Or(q.Scheme, met.Scheme)
	x.request.HostField = cmp.Or(q.Host, host)
	x.in.peer = netip.AddrPortFrom(q.Client, 0)
	x.id = "-"
	clear(r.header)
	r.body = append(r.body[:0], q.Body...)
	if len(q.Fields)+len(met.Headers)+len(met.Query) > 0 {
		r.fields(q, met)
	}
	x.in.header, x.in.length, x.in.body = r.header, int64(len(r.body)), &r.body
	if len(r.body) > 0 && len(r.header.Values("Content-Type")) == 0 {
		kind := "application/x-www-form-urlencoded"
		if r.body[0] == '{' {
			kind = "application/json"
		}
		r.setField("Content-Type", kind)
	}
}

// fields adds the values of the log where the stages read them.
func (r *replayed) fields(q *LoggedRequest, met config.Match) {
	query, cookie := url.Values{}, url.Values{}
	for name, value := range met.Query {
		query.Set(name, value)
	}
	for _, f := range q.Fields {
		if f.Value == "" {
			continue
		}
		switch f.Origin.Source {
		case key.Header:
			r.setField(f.Origin.Name, f.Value)
		case key.Cookie:
			cookie.Set(f.Origin.Name, f.Value)
		case key.Query:
			query.Set(f.Origin.Name, f.Value)
		}
	}
	for name, value := range met.Headers {
		r.setField(http.CanonicalHeaderKey(name), value)
	}
	if len(cookie) > 0 {
		r.setField("Cookie", strings.ReplaceAll(strings.ReplaceAll(cookie.Encode(), "+", "%20"), "&", "; "))
	}
	if len(query) > 0 && q.Redacted {
		r.x.request.RequestTarget += "?" + query.Encode()
	}
	if !q.HasBody {
		r.body = r.body.build(q.Fields)
	}
}

// build builds a body from fields: a JSON document if there is a JSON field, otherwise a form.
func (b literalBody) build(fields []LoggedField) literalBody {
	if !slices.ContainsFunc(fields, func(f LoggedField) bool { return f.Origin.Source.IsBody() }) {
		return b[:0]
	}
	form, document := url.Values{}, map[string]any{}
	for _, f := range fields {
		switch {
		case f.Value == "":
		case f.Origin.Source == key.JSON:
			setPointer(document, jsontext.Pointer(f.Origin.Name), f.Value)
		case f.Origin.Source.IsBody():
			form.Set(f.Origin.Name, f.Value)
		}
	}
	if len(document) == 0 {
		return append(b[:0], form.Encode()...)
	}
	made, _ := json.Marshal(document) // strings can always be marshalled
	return append(b[:0], made...)
}

// setPointer sets the value at a JSON pointer.
func setPointer(at map[string]any, pointer jsontext.Pointer, text string) {
	for name := range pointer.Parent().Tokens() {
		inner, is := at[name].(map[string]any)
		if !is {
			inner = map[string]any{}
			at[name] = inner
		}
		at = inner
	}
	at[pointer.LastToken()] = text
}
