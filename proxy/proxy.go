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
	"github.com/weir-proxy/weir/proxy/body"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/stripe"
	"github.com/weir-proxy/weir/proxy/trace"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// Options configure a Proxy. Config, Store, Registry and Log are required.
type Options struct {
	Config *config.Config // the initial configuration
	// Read reads the configuration again; nil if it is never reloaded.
	Read     func(ctx context.Context) (*config.Config, error)
	Store    limiter.AdminStore
	Registry prometheus.Registerer
	Log      zerolog.Logger
	// Access receives the lines of the access log; nil writes them to Log.
	Access *AccessWriter
	// Traces receives the spans of requests; nil disables tracing.
	Traces *trace.Exporter
	// Nodes returns the number of proxies that share the store, at least 1; nil means 1.
	Nodes func() int
	// HTTPSAddress returns the address of the HTTPS listener, for redirects; nil stands for that of
	// Config.
	HTTPSAddress func() string
	// Number is the number of the first generation; 0 means 1, and that the other nodes have not
	// agreed on it yet.
	Number int64
	// LogSalt returns the salt of the hashes of keys and addresses in logs and alerts, used if the
	// configuration has no secret. Nodes whose logs shall be comparable use the same salt. It may
	// change. Nil is a random salt of this Proxy.
	LogSalt func() Salt
	// Agree makes the nodes of a cluster adopt a configuration one after the other. It calls swap
	// with the number of the generation, at most once, while no other node is within a reload. An
	// error after the call of swap reports that the other nodes could not be reached; Rejoin then
	// repeats the agreement. Nil is for a proxy that is not part of a cluster.
	Agree Agree
}

// Agree agrees with the other nodes on a configuration; see Options.
type Agree func(ctx context.Context, c *config.Config, swap func(number int64)) error

// A Proxy serves requests according to its configuration. It is safe for concurrent use. Several
// proxies in one process share no state.
type Proxy struct {
	read            func(ctx context.Context) (*config.Config, error)
	shared          shared
	agree           Agree // nil if this proxy is not part of a cluster
	current         atomic.Pointer[generation]
	directives      atomic.Pointer[directive.Set] // nil if there are none
	exchanges       sync.Pool
	guard           *limiter.KeyGuard // the keys seen recently
	buffers         *body.Budget
	admitter        *limit.Admitter
	recorder        *recorder
	traces          *trace.Exporter // nil disables tracing
	log             zerolog.Logger
	metrics         *proxyMetrics
	badResponses    *badResponses
	openGenerations sync.WaitGroup // generations that still serve requests
	ignoredRate     sync.Once      // logs the first limit of a descriptor that is ignored
	tooManyLog      zerolog.Logger // of calls with too many descriptors, of which one is logged in faultInterval
	timeouts        config.ListenTimeouts
	deferred        deferredChanges
	settling        atomic.Int64 // requests that are being settled after their responses

	reloading   sync.Mutex // one reload at a time; guards what follows
	needsRejoin bool       // the other nodes have not agreed on the current configuration
}

// New returns a Proxy that serves o.Config as its first generation. It reads the files that the
// configuration names, and may fetch the verification keys of tokens.
func New(ctx context.Context, o Options) (*Proxy, error) {
	p, err := assemble(o, limiter.KeyGuardOptions{}, func(first *generation) error { return first.warm(ctx, nil, o.Log) })
	if err != nil {
		return nil, err
	}
	p.current.Load().start()
	return p, nil
}

// assemble returns a Proxy whose pools are not started. warm prepares its first generation; see
// generation.warm.
func assemble(o Options, keys limiter.KeyGuardOptions, warm func(*generation) error) (*Proxy, error) {
	if o.LogSalt == nil {
		own := NewSalt()
		o.LogSalt = func() Salt { return own }
	}
	if o.HTTPSAddress == nil {
		o.HTTPSAddress = func() string { return o.Config.Listen.HTTPS }
	}
	stripes := stripe.New()
	kept := shared{"weir-" + rand.Text()[:8], upstream.NewGroups(stripes.Count()), o.LogSalt, maphash.MakeSeed(), decisions.NewObserver(stripes.Count()), stripes, o.HTTPSAddress}
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
	m := newMetrics(o.Registry, kept.stripes)
	if o.Nodes == nil {
		o.Nodes = func() int { return 1 }
	}
	p := &Proxy{
		read:         o.Read,
		shared:       kept,
		agree:        o.Agree,
		exchanges:    sync.Pool{New: newExchange},
		guard:        limiter.NewKeyGuard(keys),
		buffers:      body.NewBudget(int64(o.Config.Listen.MaxBuffered)),
		admitter:     limit.NewAdmitter(o.Config, o.Store, o.Nodes, m.Metrics),
		recorder:     newRecorder(o, m),
		traces:       o.Traces,
		log:          o.Log,
		tooManyLog:   o.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: faultInterval}),
		metrics:      m,
		badResponses: newBadResponses(o.Log, o.Registry),
		timeouts:     o.Config.Listen.Timeouts,
		needsRejoin:  o.Agree != nil && o.Number == 0,
	}
	first.number.Store(max(o.Number, 1))
	p.setCurrent(first)
	if p.admitter.Announcer != nil {
		p.admitter.Announcer.OnChange(p.onChange)
	}
	registerHealth(o.Registry, p)
	registerState(o.Registry, p)
	registerSends(o.Registry, p)
	return p, nil
}

// serve runs one request through the stages, from its downstream to the response; finish does the
// rest. The generation with which it begins serves it to its end.
func (p *Proxy) serve(ctx context.Context, x *exchange, d downstream) {
	err := p.accept(x)
	if err == nil {
		err = p.decide(ctx, x)
	}
	p.respond(x, d, err)
}

// accept begins the request and resolves its route. It never waits.
func (p *Proxy) accept(x *exchange) error {
	p.recorder.start(x)
	p.enter(x)
	return p.resolveRoute(x.generation, x)
}

// enter lets the current generation serve x. finish releases it.
func (p *Proxy) enter(x *exchange) {
	x.Stripe = p.shared.stripes.Own()
	x.enteredBy = x.Stripe
	x.generation, x.Admitter = p.acquire(x.Stripe), p.admitter
}

// respond forwards the request, or refuses it because of err.
func (p *Proxy) respond(x *exchange, d downstream, err error) {
	if err != nil {
		d.respond(x.generation.refuse(x, err))
		return
	}
	if x.HasConcurrent() {
		d.beforeEnd(func(flush func()) { p.admitter.Release(&x.Admission, flush) })
	}
	x.generation.forward(x, d)
	x.Stripe = p.shared.stripes.Own() // another processor may have continued when the response came
	p.metrics.countForwarded(x)
	if x.outcome.result.Err != nil && x.route.pool != nil {
		p.badResponses.record(x.route.pool.Name(), &x.outcome.result, time.Now())
	}
	x.outcome.known = true
}

// decide runs the stages after resolveRoute that can refuse a request.
func (p *Proxy) decide(ctx context.Context, x *exchange) error {
	if err := p.resolveClaims(ctx, x); err != nil {
		return err
	}
	if x.trace == nil {
		return p.admitter.Admit(ctx, &x.Admission)
	}
	x.trace.decisionStart = time.Now()
	err := p.admitter.Admit(ctx, &x.Admission)
	x.trace.decisionEnd = time.Now()
	return err
}

// decidesAtOnce reports whether decide never waits, and takes little time, for a request of
// this route.
func (p *Proxy) decidesAtOnce(r *route) bool {
	return p.admitter.Timeout == 0 && r.onlyLimits() && r.MaxWait == 0 && !r.readsLate
}

// resolveRoute determines the client and the route of the request.
func (p *Proxy) resolveRoute(g *generation, x *exchange) error {
	g.clientIP.resolve(x)
	p.recorder.setID(x)
	if p.traces != nil {
		p.beginTrace(g, x)
	}
	if x.in.parseErr != nil {
		return x.in.parseErr
	}
	if err := normalize(x); err != nil {
		return err
	}
	if err := g.requireHTTPS(x); err != nil {
		return err
	}
	if err := g.match(x); err != nil {
		return err
	}
	return p.checkDirectives(x)
}

// A claimStage is a stage that determines the claims of a request on limits, or refuses it.
type claimStage struct {
	name    string              // in explanations
	isOf    func(r *route) bool // reports whether requests of r pass it; nil: all do
	run     claimStep
	explain func(e *explainer) (detail string, err error) // run without its side effects; nil if it has none
}

type claimStep func(p *Proxy, ctx context.Context, x *exchange) error

// claimStages returns the stages between the route of a request and its decision, in their order.
func claimStages() []claimStage {
	return []claimStage{
		{"check header", nil, func(_ *Proxy, _ context.Context, x *exchange) error {
			if err := x.generation.checkConfusable(x); err != nil {
				return err
			}
			if err := x.generation.checkConnection(x); err != nil {
				return err
			}
			return x.checkBodySize()
		}, nil},
		{"check lists", func(r *route) bool { return len(r.lists) > 0 }, func(_ *Proxy, _ context.Context, x *exchange) error {
			return x.generation.checkLists(x, x.route.lists)
		}, nil},
		{"check limits before the body", func(r *route) bool { return len(r.early) > 0 }, (*Proxy).early, (*explainer).early},
		{"check lists of body keys", func(r *route) bool { return len(r.bodyLists) > 0 }, func(_ *Proxy, _ context.Context, x *exchange) error {
			return x.generation.checkLists(x, x.route.bodyLists)
		}, nil},
		{"read keys", nil, func(_ *Proxy, _ context.Context, x *exchange) error { return x.generation.extract(x) }, nil},
		{"check new keys", func(r *route) bool { return len(r.newKeys) > 0 }, func(p *Proxy, _ context.Context, x *exchange) error {
			return p.newKeys(x)
		}, (*explainer).newKeys},
		{"idempotency key", func(r *route) bool { return r.Repeats != nil }, func(_ *Proxy, _ context.Context, x *exchange) error {
			return x.generation.idempotency(x)
		}, nil},
	}
}

// passes reports whether requests of r pass s.
func (r *route) passes(s *claimStage) bool { return s.isOf == nil || s.isOf(r) }

// setClaimSteps sets the stages that requests of r pass.
func (r *route) setClaimSteps() {
	for _, s := range claimStages() {
		if r.passes(&s) {
			r.claimSteps = append(r.claimSteps, s.run)
		}
	}
}

// resolveClaims determines the claims of the request on limits.
func (p *Proxy) resolveClaims(ctx context.Context, x *exchange) error {
	for _, step := range x.route.claimSteps {
		if err := step(p, ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// setCurrent makes g the current generation without starting its pools.
func (p *Proxy) setCurrent(g *generation) {
	p.openGenerations.Add(1)
	g.onClosed = sync.OnceFunc(p.openGenerations.Done)
	p.shared.observer.KeepOnly(g.counters())
	p.current.Store(g)
}

// Close releases the resources of the proxy. It must be called after the last request. It waits a
// short time for aborted requests to refund their permits, and refunds those that are held because
// an upstream may still be working. Changes of keys that still wait for the store are tried once more, and logged
// if they are lost.
func (p *Proxy) Close() {
	p.admitter.Close()
	p.ApplyDeferred(context.Background())
	p.logLostChanges()
	last := p.current.Load()
	last.retire()
	last.abandon()
	ended := make(chan struct{})
	go func() {
		p.openGenerations.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * limit.SettleTimeout):
	}
}
