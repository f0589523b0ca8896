package proxy

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A generation is everything that one configuration makes of requests. It never
// changes; a reload builds the next one and swaps the pointer to it.
type generation struct {
	number    int64
	config    *config.Config
	via       string     // this process in Via
	keyFields []string   // fields in which upstreams are told keys
	fields    fieldNames // by whose names no other field may go
	own       fieldSet   // fields that Weir, or its operator, speaks in
	address   addresser
	redact    redactor
	accessLog accessLog
	table     *routing.Table[*route]
	routes    []*route     // in the order of the configuration
	seed      maphash.Seed // see lasting
	pools     map[*config.Upstream]*upstream.Pool
	groups    *upstream.Fleet
	counted   []limiter.Limit // see Prepared.Limits

	users atomic.Int64 // requests under way, and 1 while it is the current one
	ended func()       // called when no request is under way any more
}

// warmWithin is the most time that making a generation ready may take.
const warmWithin = 5 * time.Second

// lasting is what outlives generations and each of them is given.
type lasting struct {
	pseudonym string          // this process in Via
	groups    *upstream.Fleet // how targets fare
	salt      func() Salt     // of hashes in the log
	seed      maphash.Seed    // of what stands for client addresses in this process
	observer  *observer       // what operators may ask about
}

// compile builds the generation of a configuration. It opens and dials nothing.
func compile(c *config.Config, l lasting) (*generation, error) {
	g := &generation{
		config: c,
		via:    l.pseudonym,
		groups: l.groups,
		redact: redactor{c.Privacy, l.salt},
		own:    ownFields(),

		accessLog: newAccessLog(c.AccessLog),
		seed:      l.seed,
		address:   newAddresser(c.ClientIP),
		pools:     map[*config.Upstream]*upstream.Pool{},
	}
	for _, k := range c.Keys {
		g.keyFields = append(g.keyFields, k.Headers()...)
	}
	g.own.add(c.ClientIP.Header)
	made := make(map[string]*route, len(c.Routes))
	var entries []routing.Entry[*route]
	for i, from := range c.Routes {
		r, err := g.route(from)
		if err != nil {
			g.close()
			return nil, fmt.Errorf("%s: route %s: %w", from.Position, from.Name, err)
		}
		r.order = i
		for _, l := range from.Limits { // a key may be written in place
			g.keyFields = append(g.keyFields, l.Key.Headers()...)
		}
		entries = append(entries, routing.Entry[*route]{Pattern: r.pattern(from), Value: r})
		g.counted = append(g.counted, r.counted()...)
		made[r.name] = r
		g.routes = append(g.routes, r)
	}
	g.table = routing.NewTable(entries)
	l.observer.tops.count(g.routes)
	g.own.add(g.keyFields...)
	g.resets(made)
	g.protect(c.Routes)
	g.users.Store(1)
	g.ended = func() {} // until it is installed
	return g, nil
}

// enter counts a request in on the current generation. That one may be retired
// between being loaded and being counted on, so it is loaded once more.
func (p *Proxy) enter() *generation {
	for {
		g := p.current.Load()
		g.users.Add(1)
		if p.current.Load() == g {
			return g
		}
		g.leave()
	}
}

// leave counts a user out; the last one closes the generation. Closing more than once
// does no harm.
func (g *generation) leave() {
	if g.users.Add(-1) == 0 {
		g.close()
		g.ended()
	}
}

// warm makes ready what takes reading or asking. An error that wraps
// key.ErrNoKeys says that g can serve, but refuses tokens for now.
func (g *generation) warm(ctx context.Context) error {
	if g.config.Tokens == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, warmWithin)
	defer cancel()
	return g.config.Tokens.Open(ctx)
}

func (g *generation) route(from *config.Route) (*route, error) {
	r := &route{
		figures:     &figures{},
		name:        from.Name,
		path:        from.Match.Path,
		reply:       newReply(from),
		rewrite:     newRewrite(from.Rewrite),
		upgrades:    from.WebSocket,
		refund:      newRefund(from.RefundOn),
		idempotency: newIdempotency(from.Name, from.Idempotency),
		maxBody:     from.MaxBody,
		newKeys:     compileNewKeys(from),
		deciders:    deciders(from.Match),

		redacted:        from.LogPath == config.PathRedacted,
		countsPreflight: from.CountPreflight,
		alerts:          alerts(g.config.Alerts),
		reads:           fieldSet{},
		besides:         from.Besides(),
	}
	r.reads.add(slices.Collect(maps.Keys(from.Match.Headers))...)
	if r.idempotency != nil {
		r.reads.add(r.idempotency.header)
	}
	if r.idempotency != nil {
		r.fields.add(r.idempotency.header)
	}
	r.reserved = g.reserved(r)
	var plain, body []*config.List
	for _, l := range from.Lists {
		r.notice(l.Key)
		if inBody(l.Key) {
			body = append(body, l)
		} else {
			plain = append(plain, l)
		}
	}
	r.lists, r.bodyLists = newListLookups(plain), newListLookups(body)
	var err error
	if r.reply == nil {
		if r.pool, err = g.pool(from.Upstream); err != nil {
			return nil, err
		}
		r.forwardedField, r.hashBy = from.Upstream.Forwarded, from.Upstream.HashBy
	}
	if r.hashBy != nil {
		counted := r.written
		r.notice(r.hashBy)
		r.written = counted // nothing is counted by that
	}
	var policies []respond.Policy
	for _, l := range from.Limits {
		if l.Mode != config.Off {
			policies = append(policies, r.limit(l)...)
		}
	}
	r.remember()
	r.foresee(from)
	r.standsIn = r.local && !slices.ContainsFunc(r.limits, func(l *limit) bool { return l.mode == config.Enforce && l.onFailure == config.Deny })
	r.quota, err = respond.NewQuota(policies, respond.Style(g.config.Defaults.Headers), newReject(from.Reject))
	return r, err
}

func newReject(c config.Reject) respond.Reject {
	r := respond.Reject{Status: c.Status, Detail: c.Detail, Body: c.Body, ContentType: c.ContentType}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		r.Fields = append(r.Fields, respond.Field{Name: name, Value: c.Headers[name]})
	}
	return r
}

// limit adds a limit to the route and returns the policies it shows to clients.
func (r *route) limit(from *config.Limit) []respond.Policy {
	l := &limit{
		name: from.Name, key: from.Key, mode: from.Mode, onFailure: from.OnStoreFailure, count: from.Count, cost: from.Cost,
		redisson: from.RedissonName, keyed: strings.Contains(from.RedissonName, "{key}"), form: from.RedissonForm,
		wait: from.Wait, maxWaiting: from.MaxWaiting, distinct: from.Distinct,
	}
	r.limits = append(r.limits, l)
	r.waits = r.waits || l.wait > 0 && l.mode == config.Enforce
	r.local = r.local || l.mode == config.Enforce && l.onFailure == config.Local
	l.penalty = r.penalty(from)
	r.notice(from.Key)
	if l.distinct != nil {
		r.notice(l.distinct)
	}
	if l.cost != nil {
		r.origin(l.cost.From)
	}
	var policies []respond.Policy
	l.windows, policies = r.rates(l, from, from.Rates)
	override := func(rates []limiter.Rate) []int {
		windows, others := r.rates(l, from, rates)
		for i := range others {
			others[i].Override = true
		}
		policies = append(policies, others...)
		return windows
	}
	if len(from.Overrides) > 0 {
		l.overrides = map[limiter.Key][]int{}
	}
	for k, rates := range from.Overrides {
		l.overrides[k] = override(rates)
	}
	if from.Hashed != nil {
		l.hashed, l.ofHashed = from.Hashed.Keys, map[string][]int{}
		for text, rates := range from.Hashed.Rates {
			l.ofHashed[text] = override(rates)
		}
	}
	return policies
}

// counted are the limits of r whose counts tell by themselves who would be
// refused.
func (r *route) counted() []limiter.Limit {
	var all []limiter.Limit
	for _, w := range r.windows {
		plain := w.Algorithm != limiter.Distinct && w.Algorithm != limiter.Cooldown && w.Scope == limiter.Overall
		if plain && w.of.mode == config.Enforce && w.of.redisson == "" && len(w.of.overrides) == 0 && w.of.hashed == nil {
			all = append(all, w.Limit)
		}
	}
	return all
}

// penalty counts refusals for as long as the limit's longest window.
func (r *route) penalty(from *config.Limit) *penalty {
	if from.Penalty == nil {
		return nil
	}
	rate := limiter.Rate{Count: from.Penalty.After}
	for _, counted := range from.Rates {
		rate.Window = max(rate.Window, counted.Window)
	}
	return &penalty{limiter.Limit{Name: r.name + "." + from.Name + ":refused", Rate: rate}, from.Penalty.Ban}
}

// rates adds a window to the route for each rate of a limit.
func (r *route) rates(l *limit, from *config.Limit, rates []limiter.Rate) (windows []int, policies []respond.Policy) {
	for _, rate := range rates {
		span := limiter.WindowName(rate.Window)
		shown := rate
		switch from.Algorithm {
		case limiter.Concurrent:
			span = "held"
		case limiter.Cooldown:
			span = "cooldown" // whatever its steps are
			shown.Window = from.Steps[len(from.Steps)-1]
		}
		windows = append(windows, len(r.windows))
		r.windows = append(r.windows, &window{
			of:     l,
			policy: len(r.windows),
			rate:   l.name + "-" + span,
			near:   r.alerts.near(rate, l.mode),
			Limit:  limiter.Limit{Name: r.name + "." + l.name + ":" + span, Rate: rate, Algorithm: from.Algorithm, Burst: from.Burst, Steps: from.Steps, Scope: from.Scope},
		})
		name := l.name
		if len(rates) > 1 {
			name += "-" + span
		}
		policies = append(policies, respond.Policy{Name: name, Rate: shown, Limit: l.name, Concurrent: from.Algorithm == limiter.Concurrent, Expose: from.Expose && l.mode == config.Enforce})
	}
	return windows, policies
}

// notice learns what reading a key takes.
func (r *route) notice(s *key.Spec) {
	for _, o := range s.Origins() {
		r.origin(o)
	}
}

// origin learns what reading something at o takes.
func (r *route) origin(o key.Origin) {
	r.reads.addOrigin(o)
	switch o.Source {
	case key.ClientIP, key.Host, key.Method, key.Global: // no client can write there what it likes
	default:
		r.written = append(r.written, o)
	}
	switch o.Source {
	case key.Query, key.Form: // a field of a form may stand in the query as well
		r.queries = true
		r.names = r.names.With(o.Name)
	case key.Header:
		r.fields.add(o.Name)
	case key.Path:
		r.hidden = append(r.hidden, o.Name)
	}
}
