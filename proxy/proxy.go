package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/trace"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// Options are what a Proxy is given. All but Read, Nodes, Number, LogSalt and
// Agree are required.
type Options struct {
	Path   string         // of the configuration
	Config *config.Config // what was read at start
	// Read reads the configuration again; nil loads Path.
	Read     func(ctx context.Context) (*config.Config, error)
	Store    limiter.AdminStore
	Registry prometheus.Registerer
	Log      zerolog.Logger
	// Access is where lines of requests go; nil: where Log writes.
	Access *AccessWriter
	// Traces takes the spans of requests; nil: nothing is traced.
	Traces *trace.Exporter
	// Nodes tells how many proxies share the store, at least 1; nil is always 1.
	Nodes func() int
	// Number is that of the first generation; 0 is 1, not agreed on yet.
	Number int64
	// LogSalt is what hashes of keys and addresses in logs and alerts are made with
	// where the configuration has no secret; nil is one that this Proxy makes. Nodes
	// that shall be compared have the same. It may change.
	LogSalt func() Salt
	// Agree makes the nodes of a cluster take up a configuration one after the
	// other: it calls swap with the number of the generation, at most once,
	// while no other node is in the middle of a reload. An error after swap was
	// called says that the others could not be asked; what was taken up so is
	// agreed on once more by Rejoin. Nil is for a proxy
	// that shares nothing.
	Agree Agree
}

// Agree is how nodes agree on a configuration; see Options.
type Agree func(ctx context.Context, c *config.Config, swap func(number int64)) error

// A Proxy serves requests by what its configuration says. It is safe for
// concurrent use; several in one process share nothing.
type Proxy struct {
	read        func(ctx context.Context) (*config.Config, error)
	lasting     shared
	agree       Agree
	current     atomic.Pointer[generation]
	exchanges   sync.Pool
	downstreams sync.Pool         // of *http1Downstream
	guard       *limiter.KeyGuard // which keys are known
	buffers     *buffers
	admitter    *admitter
	recorder    *recorder
	traces      *trace.Exporter // nil: nothing is traced
	log         zerolog.Logger
	metrics     *metrics
	alive       sync.WaitGroup // generations that a request is still served by
	timeouts    config.ListenTimeouts

	reloading sync.Mutex // one reload at a time; guards what follows
	unagreed  bool       // the other nodes could not be asked about what is served
}

// New makes a Proxy that serves o.Config as its first generation. It reads the
// files that the configuration names, and may ask for the keys of tokens.
func New(ctx context.Context, o Options) (*Proxy, error) {
	p, err := assemble(o, limiter.KeyGuardOptions{}, func(first *generation) error { return first.warm(ctx) })
	if err != nil {
		return nil, err
	}
	p.current.Load().start()
	return p, nil
}

// assemble makes a Proxy that does not look after its targets yet. warm makes its first
// generation ready; see generation.warm.
func assemble(o Options, keys limiter.KeyGuardOptions, warm func(*generation) error) (*Proxy, error) {
	if o.LogSalt == nil {
		own := NewSalt()
		o.LogSalt = func() Salt { return own }
	}
	kept := shared{"weir-" + rand.Text()[:8], upstream.NewGroups(), o.LogSalt, maphash.MakeSeed(), newObserver()}
	first, err := compile(o.Config, kept)
	if err != nil {
		return nil, fmt.Errorf("compile config: %w", err)
	}
	if err := warm(first); errors.Is(err, key.ErrNoVerificationKeys) {
		o.Log.Warn().Err(err).Msg("tokens are refused for now")
	} else if err != nil {
		first.close()
		return nil, fmt.Errorf("warm: %w", err)
	}
	first.number = max(o.Number, 1)
	unagreed := o.Agree != nil && o.Number == 0
	m := newMetrics(o.Registry)
	m.generation.Set(float64(first.number))
	if o.Nodes == nil {
		o.Nodes = func() int { return 1 }
	}
	if o.Read == nil {
		o.Read = func(context.Context) (*config.Config, error) { return config.Load(o.Path) }
	}
	if o.Agree == nil {
		o.Agree = alone()
	}
	p := &Proxy{
		read:      o.Read,
		lasting:   kept,
		agree:     o.Agree,
		exchanges: sync.Pool{New: newExchange},
		guard:     limiter.NewKeyGuard(keys),
		buffers:   newBuffers(o.Config.Listen.MaxBuffered),
		admitter:  newAdmitter(o, m),
		recorder:  newRecorder(o, m),
		traces:    o.Traces,
		log:       o.Log,
		metrics:   m,
		timeouts:  o.Config.Listen.Timeouts,
		unagreed:  unagreed,
	}
	p.adopt(first)
	if p.admitter.announcer != nil {
		p.admitter.announcer.OnChange(p.hear)
	}
	m.watch(o.Registry, p)
	m.watchMemory(o.Registry, p.admitter)
	p.buffers.watch(o.Registry)
	return p, nil
}

// alone numbers the generations of a proxy that shares nothing.
func alone() Agree {
	number := int64(1)
	return func(_ context.Context, _ *config.Config, swap func(int64)) error {
		number++
		swap(number)
		return nil
	}
}

// serve is the life of one request between its downstream and the way back; finish is the
// rest. The generation that it begins with is the one it ends with.
func (p *Proxy) serve(ctx context.Context, x *exchange, d downstream) {
	p.recorder.arrive(x)
	x.generation = p.enter()
	g := x.generation
	if err := p.through(ctx, g, x); err != nil {
		d.answer(g.refuse(x, err))
		return
	}
	if x.hasHeld() {
		d.beforeEnd(func(flush func()) { p.admitter.release(ctx, &x.admission, flush) })
	}
	g.forward(x, d)
	p.metrics.forwarded(x)
	x.outcome.known = true
}

// through takes a request through the stages in which it may be refused.
func (p *Proxy) through(ctx context.Context, g *generation, x *exchange) error {
	if err := p.route(g, x); err != nil {
		return err
	}
	if err := p.claim(ctx, g, x); err != nil {
		return err
	}
	x.trace.asks()
	defer x.trace.answered()
	return p.admitter.admit(ctx, &x.admission)
}

// route learns who asks, and the route of the request.
func (p *Proxy) route(g *generation, x *exchange) error {
	g.address.resolve(x)
	p.recorder.name(x)
	p.beginTrace(g, x)
	if x.in.fault != nil {
		return x.in.fault
	}
	if err := normalize(x); err != nil {
		return err
	}
	return g.match(x)
}

// claim learns what the request asks of which limits.
func (p *Proxy) claim(ctx context.Context, g *generation, x *exchange) error {
	if err := g.checkConfusable(x); err != nil {
		return err
	}
	if err := g.connection(x); err != nil {
		return err
	}
	if err := x.checkBodySize(); err != nil {
		return err
	}
	if err := g.checkLists(x, x.route.lists); err != nil {
		return err
	}
	if err := p.early(ctx, g, x); err != nil {
		return err
	}
	if err := g.checkLists(x, x.route.bodyLists); err != nil {
		return err
	}
	if err := g.extract(x); err != nil {
		return err
	}
	if err := p.newKeys(x); err != nil {
		return err
	}
	return g.idempotency(x)
}

// install makes g the generation that serves.
func (p *Proxy) install(g *generation) {
	p.adopt(g)
	g.start()
}

// adopt is install without looking after the targets.
func (p *Proxy) adopt(g *generation) {
	p.alive.Add(1)
	g.ended = sync.OnceFunc(p.alive.Done)
	p.lasting.observer.tops.serve(g.routes)
	p.current.Store(g)
}

// Close lets go of what the proxy holds. It is called when no request comes any
// more. Requests that were cut off have a moment to give back what they took.
func (p *Proxy) Close() {
	last := p.current.Load()
	last.retire()
	last.leave()
	ended := make(chan struct{})
	go func() {
		p.alive.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * settleTimeout):
	}
}
