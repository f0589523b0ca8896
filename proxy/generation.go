package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/stripe"
	"github.com/weir-proxy/weir/proxy/upstream"
	"github.com/weir-proxy/weir/proxy/view"
)

// A generation is the compiled form of one configuration. It is immutable; a reload builds the next
// one and swaps the pointer to it.
type generation struct {
	number          atomic.Int64
	config          *config.Config
	shared          shared
	keyFields       []string   // fields in which upstreams receive keys
	proxyFields     []string   // fields in which trusted proxies send plans, and the client address
	protectedFields fieldNames // names with which no other field may be confused
	clientFields    fieldNames // the field that the client address is read from
	clientIP        clientIPResolver
	redact          redactor
	accessLog       accessLog
	table           *routing.Table[*route]
	descriptors     *routing.Descriptors[*route]
	routes          []*route // in the order of the configuration
	pools           map[*config.Upstream]*upstream.Pool
	limits          []*limit.Limit // that are not off, each common one once; see config.Config.Limits
	sharing         sharing        // until it is compiled
	refusals        *respond.Cache[http1.FieldBlock]
	readsScheme     bool               // some route matches a scheme
	errorTexts      respond.ErrorTexts // of requests without a route
	tokenUse        limiter.Limit      // on the uses of a token of a challenge: one, for as long as any is accepted

	opened   []*key.Tokens // by warm: those of a configuration that another generation serves are not its own
	users    stripe.Users  // requests in progress, plus 1 until abandon
	isOver   atomic.Bool   // abandon was called
	onClosed func()        // called when the last request of a retired generation has ended
}

// fieldBlock renders fields for HTTP/1.1. It returns nil if they cannot be sent, which is reported when they are.
func fieldBlock(fields []respond.Field) *http1.FieldBlock {
	var pairs []string
	for _, f := range fields {
		pairs = append(pairs, f.Name, f.Value)
	}
	b, err := http1.NewFieldBlock(pairs...)
	if err != nil {
		return nil
	}
	return &b
}

// warmTimeout bounds the time to prepare a generation before it serves.
const warmTimeout = 5 * time.Second

// shared is the state that outlives generations and is passed to each of them.
type shared struct {
	pseudonym string              // the pseudonym of this process in Via
	groups    *upstream.Groups    // the health of targets
	salt      func() Salt         // returns the salt of hashes in the log
	seed      maphash.Seed        // for hashes of client addresses in this process
	observer  *decisions.Observer // recent requests and top keys
	stripes   *stripe.Numbers     // of what all requests write
	https     func() string       // returns the address of the HTTPS listener
}

// compile builds the generation of a configuration. It opens no file and no connection.
func compile(c *config.Config, l shared) (*generation, error) {
	g := &generation{
		config: c,
		shared: l,
		redact: redactor{c.Privacy, l.salt},

		accessLog: newAccessLog(c.AccessLog),
		clientIP:  newClientIPResolver(c.ClientIP),
		pools:     map[*config.Upstream]*upstream.Pool{},

		errorTexts: newErrorTexts(c.Errors), sharing: newSharing(),
		refusals: respond.NewCache(fieldBlock),
	}
	for _, k := range c.Keys {
		g.keyFields = append(g.keyFields, k.Headers()...)
	}
	if name := http.CanonicalHeaderKey(c.ClientIP.Header); name != "X-Forwarded-For" { // which Weir sets anew
		g.clientFields.add(name)
		if name != "X-Real-Ip" && name != "Forwarded" { // as these two
			g.proxyFields = append(g.proxyFields, name)
		}
	}
	made := make(map[string]*limit.Route, len(c.Routes))
	var entries []routing.Entry[*route]
	var described []routing.DescriptorEntry[*route]
	for _, from := range c.Routes {
		r, err := g.compileRoute(from)
		if err != nil {
			g.close()
			return nil, fmt.Errorf("%s: route %s: %w", from.Position, from.Name, err)
		}
		g.readsScheme = g.readsScheme || from.Match.Scheme != ""
		for _, read := range from.Reads() { // a key may be defined where it is read
			g.keyFields = append(g.keyFields, read.Key.Headers()...)
			if read.Purpose == config.ForPlan && read.Key.From.Source.IsField() {
				g.proxyFields = append(g.proxyFields, read.Key.From.Name)
			}
		}
		if from.Match.Domain != "" {
			described = append(described, routing.DescriptorEntry[*route]{Domain: from.Match.Domain, Entries: from.Match.Descriptor, Value: r})
		} else {
			r.order = len(entries)
			entries = append(entries, routing.Entry[*route]{Pattern: r.pattern(), Value: r})
		}
		made[r.Name] = &r.Route
		g.routes = append(g.routes, r)
	}
	g.sharing = sharing{}
	g.table, g.descriptors = routing.NewTable(entries), routing.NewDescriptors(described)
	g.setLimits()
	g.tokenUse = limit.TokenUse(g.limits)
	g.setCounters(l.observer)
	limit.Link(g.limits, made)
	g.protectFields(c.Routes)
	g.users = stripe.NewUsers(l.stripes.Count())
	g.users.Add(0, 1)
	g.onClosed = func() {} // until it is installed
	return g, nil
}

// acquire adds a user to the current generation, in the stripe of the processor, and returns it. The
// generation may be retired between loading the pointer and adding the user, so the pointer is loaded again.
func (p *Proxy) acquire(own int) *generation {
	for {
		g := p.current.Load()
		g.users.Add(own, 1)
		if p.current.Load() == g {
			return g
		}
		g.release(own)
	}
}

// release removes a user from the stripe in which acquire has added it. After abandon the last one closes
// the generation; closing it more than once is harmless.
func (g *generation) release(own int) {
	g.users.Add(own, -1)
	if g.isOver.Load() && g.users.Sum() == 0 {
		g.close()
		g.onClosed()
	}
}

// abandon lets g be closed when it has no users. g is not, or not any more, the current generation.
func (g *generation) abandon() {
	g.isOver.Store(true)
	g.release(0)
}

// warm does the I/O that a generation needs before it serves. earlier verify the tokens until then. An error that wraps
// key.ErrNoVerificationKeys reports that g can serve, but refuses tokens until keys are loaded.
func (g *generation) warm(ctx context.Context, earlier []*key.Tokens, log zerolog.Logger) (err error) {
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	for _, t := range g.config.Tokens {
		opened := t.Open(ctx, earlier, func(err error) { log.Warn().Err(err).Msg("keys of tokens not reloaded") })
		if opened != nil && !errors.Is(opened, key.ErrNoVerificationKeys) {
			return opened
		}
		g.opened = append(g.opened, t)
		err = cmp.Or(err, opened)
	}
	return err
}

// The capacity of a memory store that replaces a shared store.
const (
	sharedKeys  = 16_000_000
	sharedBytes = 4 << 30
)

// NewOffline returns a Proxy for queries, which serves no requests: it dials no targets, logs
// nothing, and counts in its own memory store whatever the configuration says. The caller must
// close it. Keys of tokens are fetched as configured; without them, requests that need a token are
// refused.
func NewOffline(ctx context.Context, c *config.Config) (*Proxy, error) {
	memory := limiter.MemoryOptions{Clock: time.Now}
	return offline(c, memory, func(first *generation) error { return first.warm(ctx, nil, zerolog.Nop()) })
}

// offline is NewOffline with the clock and the capacity of room. Where room has no capacity, that
// of the configured store applies.
func offline(c *config.Config, memory limiter.MemoryOptions, warm func(*generation) error) (*Proxy, error) {
	if c.Store == config.StoreRedis { // a shared store has no configured capacity
		memory.MaxKeys, memory.MaxBytes = cmp.Or(memory.MaxKeys, sharedKeys), cmp.Or(memory.MaxBytes, sharedBytes)
	}
	o := Options{Config: c, Store: limiter.NewMemory(memory), Registry: prometheus.NewRegistry(), Log: zerolog.Nop()}
	p, err := assemble(o, limiter.KeyGuardOptions{Clock: memory.Clock}, warm)
	if err != nil {
		return nil, err
	}
	p.admitter.Timeout = 0 // a memory store does not block
	return p, nil
}

// pool returns the pool of an upstream. It is created once per generation.
func (g *generation) pool(from *config.Upstream) *upstream.Pool {
	if g.pools[from] == nil {
		g.pools[from] = upstream.New(upstream.Config{Upstream: *from, Pseudonym: g.shared.pseudonym, Groups: g.shared.groups})
	}
	return g.pools[from]
}

// start starts the health checks and name resolution of g's targets.
func (g *generation) start() {
	for _, p := range g.pools {
		p.Start()
	}
}

// retire stops what start has started. Requests in progress continue.
func (g *generation) retire() {
	for _, p := range g.pools {
		p.Retire()
	}
}

// close closes idle connections to upstreams. Requests in progress are not interrupted.
func (g *generation) close() {
	for _, p := range g.pools {
		p.Close()
	}
	for _, t := range g.opened {
		t.Close()
	}
}

// hashBy returns the value by which the target is selected with hash balancing. It is "" if there
// is none or the request does not have the key; any target may then be selected.
func (g *generation) hashBy(x *exchange) string {
	by := x.route.hashBy()
	if by == nil || x.readQuery() != nil {
		return ""
	}
	k, err := g.key(x, by)
	if err != nil || k.Skip {
		return ""
	}
	return k.Key.String()
}

// A Report is the result of a reload.
type Report struct {
	Generation int64            `json:"generation"`
	Hash       string           `json:"hash"`
	Changed    bool             `json:"changed"` // false if the files have not changed
	Warnings   []config.Problem `json:"-"`
	AgreeErr   error            `json:"-"` // if not nil, why the other nodes could not be reached
	Unready    error            `json:"-"` // if not nil, why some requests are refused for now
	Took       time.Duration    `json:"-"`
}

// ErrRestart reports that a configuration change takes effect only after a restart.
var ErrRestart = errors.New("needs a restart")

// Reload reads the configuration and serves it. If it returns an error, the proxy serves exactly
// what it served before. An error that contains config.Problems describes what is wrong with the
// files.
func (p *Proxy) Reload(ctx context.Context) (Report, error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()

	began := time.Now()
	now := p.current.Load()
	read, err := p.read(ctx)
	report := Report{Generation: now.number.Load(), Hash: now.config.Hash}
	if err == nil {
		err = config.Emptied(now.config, read)
	}
	if err == nil && (read.Sum != now.config.Sum || len(read.Tokens) > 0) { // the sum does not cover files with keys of tokens
		report, err = p.adopt(ctx, read)
	}
	report.Took = time.Since(began)
	p.metrics.countReload(report, err)
	return report, err
}

// Rejoin agrees with the other nodes on the current configuration, if they could not be reached
// when it was adopted: the current generation gets their number. An error changes nothing.
func (p *Proxy) Rejoin(ctx context.Context) (Report, error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()

	now := p.current.Load()
	report := Report{Generation: now.number.Load(), Hash: now.config.Hash}
	if !p.needsRejoin {
		return report, nil
	}
	err := p.agree(ctx, now.config, func(number int64) { // its parts, such as the keys of tokens, are open already
		now.number.Store(number)
		report.Generation, report.Changed = number, true
	})
	p.needsRejoin = err != nil
	if report.Changed {
		report.AgreeErr, err = err, nil
	}
	p.metrics.countReload(report, err)
	return report, err
}

// adopt compiles and serves read. p.reloading must be held.
func (p *Proxy) adopt(ctx context.Context, read *config.Config) (Report, error) {
	was := p.current.Load().config
	next, err := p.Prepare(ctx, read)
	if err != nil {
		return Report{}, err
	}
	if p.agree == nil {
		p.swap(next, p.current.Load().number.Load()+1)
	} else {
		err = p.agree(ctx, read, func(number int64) { p.swap(next, number) })
	}
	if p.current.Load() != next.generation {
		next.Discard()
		return Report{}, fmt.Errorf("agree on config: %w", err)
	}
	p.needsRejoin = err != nil
	warnings := append(config.Restarts(was, read), read.Warnings...)
	return Report{Generation: next.number.Load(), Hash: read.Hash, Changed: true, Warnings: warnings, AgreeErr: err, Unready: next.Unready}, nil
}

// A Prepared is a compiled configuration that is ready to be served. Exactly one of Install and
// Discard must be called, once.
type Prepared struct {
	*generation
	proxy   *Proxy
	Unready error // if not nil, why some requests will be refused for now
}

// Prepare compiles c without serving it. It returns an error that wraps ErrRestart if c changes
// what a reload cannot change.
func (p *Proxy) Prepare(ctx context.Context, c *config.Config) (*Prepared, error) {
	if err := immutable(p.current.Load().config, c); err != nil {
		return nil, err
	}
	next, err := compile(c, p.shared)
	if err != nil {
		return nil, fmt.Errorf("compile config: %w", err)
	}
	unready := next.warm(ctx, p.current.Load().config.Tokens, p.log)
	if unready != nil && !errors.Is(unready, key.ErrNoVerificationKeys) {
		next.abandon()
		return nil, fmt.Errorf("warm: %w", unready)
	}
	return &Prepared{next, p, unready}, nil
}

// Config returns the configuration that was prepared.
func (p *Prepared) Config() *config.Config { return p.config }

// ChangedLimits returns the limits in enforce mode whose counts in this cluster's store determine which
// keys are refused, except those that are served now as they are. It excludes limits shared with other
// programs, limits counted by each node separately, and limits with overrides.
func (p *Prepared) ChangedLimits() (changed []limiter.Limit) {
	now := limit.Plain(p.proxy.current.Load().limits)
	for _, l := range limit.Plain(p.limits) {
		same := func(n limiter.Limit) bool {
			return n.Name == l.Name && n.Rate == l.Rate && n.Algorithm == l.Algorithm && n.Burst == l.Burst
		}
		if !slices.ContainsFunc(now, same) {
			changed = append(changed, l)
		}
	}
	return changed
}

// KeyHash returns the hash of k in the log.
func (p *Prepared) KeyHash(k limiter.Key) string { return p.redact.KeyHash(k) }

// Install serves p from now on, with the number on which all nodes have agreed.
func (p *Prepared) Install(number int64) {
	p.proxy.reloading.Lock()
	defer p.proxy.reloading.Unlock()
	p.proxy.swap(p, number)
	p.proxy.needsRejoin = false
	p.proxy.metrics.countReload(Report{Changed: true}, nil)
}

// Discard releases the resources of p.
func (p *Prepared) Discard() { p.abandon() }

// swap makes next the current generation. p.reloading must be held.
func (p *Proxy) swap(next *Prepared, number int64) {
	old := p.current.Load()
	next.number.Store(number)
	p.setCurrent(next.generation) // nothing can fail from here on
	next.start()
	old.retire()
	old.abandon() // closed when its last request ends
}

// Serving returns the number and the configuration of the current generation.
func (p *Proxy) Serving() (number int64, c *config.Config) {
	g := p.current.Load()
	return g.number.Load(), g.config
}

// immutable returns an error that wraps ErrRestart and lists the sections that differ between two
// configurations and cannot be changed by a reload.
func immutable(was, is *config.Config) error {
	sameTraces := was.Traces.Endpoint == is.Traces.Endpoint && was.Traces.Service == is.Traces.Service && maps.Equal(was.Traces.Headers, is.Traces.Headers)
	sections := view.Holding(
		view.Fact{Holds: !reflect.DeepEqual(was.Listen, is.Listen), Text: "listen"},
		view.Fact{Holds: !reflect.DeepEqual(was.Admin, is.Admin), Text: "admin"},
		view.Fact{Holds: was.Store != is.Store, Text: "store"},
		view.Fact{Holds: !was.Redis.Equal(is.Redis), Text: "redis"},
		view.Fact{Holds: was.Reload != is.Reload, Text: "reload"},
		view.Fact{Holds: !sameTraces, Text: "traces.endpoint, headers or service"},
		view.Fact{Holds: was.AccessLog.File != is.AccessLog.File, Text: "access_log.file"},
	)
	if len(sections) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s changed; restart weir, or undo that change", ErrRestart, strings.Join(sections, ", "))
}
