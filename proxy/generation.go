package proxy

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
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
	own       fieldNames // fields that Weir, or its operator, speaks in
	address   clientIPResolver
	redact    redactor
	accessLog accessLog
	table     *routing.Table[*route]
	routes    []*route     // in the order of the configuration
	seed      maphash.Seed // see lasting
	pools     map[*config.Upstream]*upstream.Pool
	groups    *upstream.Groups
	counted   []limiter.Limit // see Prepared.Limits

	users atomic.Int64 // requests in progress, and 1 while it is the current one
	ended func()       // called when no request is in progress any more
}

// warmTimeout is the most time that making a generation ready may take.
const warmTimeout = 5 * time.Second

// shared is what outlives generations and each of them is given.
type shared struct {
	pseudonym string           // this process in Via
	groups    *upstream.Groups // how targets fare
	salt      func() Salt      // of hashes in the log
	seed      maphash.Seed     // of what stands for client addresses in this process
	observer  *observer        // what operators may ask about
}

// compile builds the generation of a configuration. It opens and dials nothing.
func compile(c *config.Config, l shared) (*generation, error) {
	g := &generation{
		config: c,
		via:    l.pseudonym,
		groups: l.groups,
		redact: redactor{c.Privacy, l.salt},
		own:    ownFields(),

		accessLog: newAccessLog(c.AccessLog),
		seed:      l.seed,
		address:   newClientIPResolver(c.ClientIP),
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
		entries = append(entries, routing.Entry[*route]{Pattern: r.pattern(), Value: r})
		g.counted = append(g.counted, r.counted()...)
		made[r.Name] = r
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
// key.ErrNoKeys reports that g can serve, but refuses tokens for now.
func (g *generation) warm(ctx context.Context) error {
	if g.config.Tokens == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	return g.config.Tokens.Open(ctx)
}
