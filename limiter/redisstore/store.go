package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// DefaultTimeout is how long one decision may wait for Redis.
const DefaultTimeout = 50 * time.Millisecond

// DefaultPrefix begins the names of all keys in Redis.
const DefaultPrefix = "weir"

// Options are what a Store may be told. The zero value means the defaults.
type Options struct {
	// Prefix begins all keys; DefaultPrefix when empty. It holds no braces.
	Prefix string
	// Client tells this process apart from all others, for limits that each client
	// counts by itself; random when empty. What a client counted is found again
	// by one of the same name: two processes of one name count together.
	Client string
	// Timeout is the most one call may take, whatever the caller's context
	// says; DefaultTimeout when zero.
	Timeout time.Duration
	// MaxInFlight is how many batches of Take may be in progress at a time, to each
	// node; DefaultInFlight when zero. Requests that arrive meanwhile travel together
	// in the next one.
	MaxInFlight int
	// Denials is how many refused windows are remembered in this process, about
	// 200 bytes each; DefaultDenials when zero, none when negative.
	Denials int
	// Settle is how long after Redis is back it is not Available yet, but Settling:
	// longer than the breaker of any process rests, so that all have reported what
	// they granted in its place before the first goes by Redis alone. None when zero.
	Settle time.Duration
}

// DefaultInFlight is enough to keep one Redis busy, also one that is some way off.
const DefaultInFlight = 4

// DefaultDenials is enough for 100,000 keys under attack.
const DefaultDenials = 100_000

// A Store is a limiter.AdminStore in Redis. All methods are safe for concurrent use
// and wait for Redis no longer than the context and Options.Timeout allow. An
// error of Redis wraps limiter.ErrUnavailable.
type Store struct {
	client  redis.UniversalClient
	names   names
	timeout time.Duration
	scripts scripts
	// for limiters that Redisson shares: those that log, those that count a window
	sharedLog, sharedWindow sharedScripts
	maxInFlight             int
	pipelines               *pipelines
	calls                   sync.Pool // of *call, not in use
	apart                   bool      // a cluster: one script call per key
	settle                  time.Duration
	reports                 *reports
	outage                  *outage
	breaker                 *breaker       // nil: the client has none, or one for each node
	denials                 *denials       // nil: none
	invalidations           *invalidations // nil: none
	changes                 *changes
}

// New makes a Store that asks client, a *redis.Client or a *redis.ClusterClient, which
// it does not close. NewClient makes one with the right settings; above all, it must not
// send a command again that timed out. For takes the Store makes connections of its own
// with the client's options; they end with Close. Hooks of the client do not see takes.
func New(client redis.UniversalClient, o Options) *Store {
	return newStore(client, o, clockLua)
}

func newStore(client redis.UniversalClient, o Options, clock string) *Store {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = DefaultInFlight
	}
	s := &Store{
		client: client, names: newNames(o.Prefix, o.Client), timeout: o.Timeout, scripts: newScripts(clock, o.Prefix),
		settle: o.Settle, reports: newReports(), outage: newOutage(),
	}
	s.changes = newChanges(s.reports)
	s.sharedLog = newSharedScripts(clock, o.Prefix, limiter.RedissonByte)
	s.sharedWindow = newSharedScripts(clock, o.Prefix, limiter.RedissonWindow)
	s.maxInFlight = o.MaxInFlight
	_, s.apart = client.(*redis.ClusterClient)
	if single, ok := client.(*redis.Client); ok {
		s.breaker = breakerOf(single)
	}
	s.pipelines = newPipelines(s)
	if o.Denials == 0 {
		o.Denials = DefaultDenials
	}
	if o.Denials > 0 {
		s.denials = newDenials(o.Denials)
		s.invalidations = listen(client, s.names, s.denials, s.changes)
	}
	return s
}

// Close waits for what is in progress, and reports what is to be reported. The
// client stays open. Afterwards Take answers limiter.ErrUnavailable.
func (s *Store) Close() error {
	s.outage.close(s)
	s.pipelines.close()
	if s.invalidations != nil {
		s.invalidations.close()
	}
	s.denials.stop()
	return nil
}

// Take implements limiter.Store: one round trip, one step in Redis, shared with
// the requests that came meanwhile (group commit). They are decided in order, as if one by one.
// What is refused for some time already is not asked for again.
func (s *Store) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	if err := limiter.CheckClaims(claims); err != nil {
		return err
	}
	if len(claims) == 0 {
		return s.decide(ctx, s.scripts.mixed, claims, [16]byte{}, d)
	}
	if s.denials.decide(time.Now(), denialTTL, claims, d) {
		return nil
	}
	if err := s.takeAfterReports(ctx, claims, d); err != nil {
		s.heard(err)
		// Others may have learnt meanwhile what this call waited for in vain.
		if s.denials.decide(time.Now(), noExpiry, claims, d) {
			return nil
		}
		return fmt.Errorf("take %d claims: %w: %w", len(claims), limiter.ErrUnavailable, err)
	}
	return nil
}

// Denied reports whether one of claims is known to be refused now, and fills d then.
// It asks nobody: what it does not know, Redis may refuse anyway.
func (s *Store) Denied(claims []limiter.Claim, d *limiter.Decision) bool {
	return limiter.CheckClaims(claims) == nil && s.denials.decide(time.Now(), denialTTL, claims, d)
}

// takeAfterReports tells Redis what it has not heard of the claims' windows, and
// then has it decide, in the time of one call.
func (s *Store) takeAfterReports(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	if s.reports.about(claims) {
		within, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		if err := s.tell(within, claims); err != nil {
			return fmt.Errorf("report what was granted: %w", err)
		}
		ctx = within
	}
	if !s.one(claims) {
		return s.reserve(ctx, claims, d)
	}
	return s.takeTogether(ctx, claims, d)
}

// takeTogether decides a request by one script call.
func (s *Store) takeTogether(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	id := newID()
	if err := s.ask(ctx, claims, id, d); err != nil {
		return err
	}
	if d.Allowed {
		d.Permit = limiter.Permit{ID: id, At: d.At}
	}
	return nil
}

// ask has Redis decide claims, which it can in one script call.
func (s *Store) ask(ctx context.Context, claims []limiter.Claim, id [16]byte, d *limiter.Decision) error {
	p, err := s.pipelines.of(ctx, &claims[0])
	if err != nil {
		return err
	}
	c := s.newCall(claims, id)
	if err := p.do(ctx, c); err != nil {
		return err
	}
	outcomes := append(d.Outcomes[:0], c.decision.Outcomes...)
	*d = c.decision
	d.Outcomes = outcomes
	s.release(c)
	return nil
}

// Peek implements limiter.Store.
func (s *Store) Peek(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	if err := limiter.CheckClaims(claims); err != nil {
		return err
	}
	if s.one(claims) {
		return s.decide(ctx, s.scripts.peek, claims, [16]byte{}, d)
	}
	var parts []*part
	var mu sync.Mutex
	err := s.each(claims, func(p *part) error {
		mu.Lock()
		parts = append(parts, p)
		mu.Unlock()
		return s.decide(ctx, s.scripts.peek, p.claims, [16]byte{}, &p.Decision)
	})
	if err != nil {
		return err
	}
	assemble(claims, parts, d)
	return nil
}

// decide asks for one decision, all by itself.
func (s *Store) decide(ctx context.Context, sc script, claims []limiter.Claim, id [16]byte, d *limiter.Decision) error {
	if len(claims) > 0 && claims[0].RedissonName != "" {
		return s.peekShared(ctx, claims, d)
	}
	b := newPayload(s.names, claims)
	b.request(id, len(claims))
	for i := range claims {
		b.claim(&claims[i], i+1)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	reply, err := sc.run(ctx, s.client, b.keyNames(), b.args())
	if err == nil {
		err = readOne(reply, claims, d)
	}
	if err != nil {
		s.remap()
		return fmt.Errorf("decide %d claims: %w: %w", len(claims), limiter.ErrUnavailable, err)
	}
	return nil
}

// Refund implements limiter.Store.
func (s *Store) Refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	if err := limiter.CheckClaims(claims); err != nil {
		return err
	}
	if p.IsZero() || len(claims) == 0 {
		return nil
	}
	return s.each(claims, func(p2 *part) error { return s.refund(ctx, p2.claims, p) })
}

// refund gives back one part.
func (s *Store) refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	var err error
	if c := claims[0]; c.RedissonName != "" {
		_, err = s.changeShared(ctx, s.shared(c.RedissonFormat).refund, c, taken(claims, p)...)
	} else {
		_, err = s.change(ctx, s.scripts.refund, claims, taken(claims, p)...)
	}
	if err != nil {
		return fmt.Errorf("refund %d claims: %w", len(claims), err)
	}
	s.denials.forgetAll(claims)
	return nil
}

// taken tells a script what p took for claims.
func taken(claims []limiter.Claim, p limiter.Permit) []any {
	args := []any{p.ID[:idBytes], p.At.UnixMilli()}
	for _, c := range claims {
		args = append(args, c.Cost)
	}
	return args
}

// change runs a script that changes the windows of claims and answers with a
// number that is not negative. Its errors wrap limiter.ErrUnavailable.
func (s *Store) change(ctx context.Context, sc script, claims []limiter.Claim, rest ...any) (int64, error) {
	b := newPayload(s.names, claims, rest...)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	reply, err := sc.run(ctx, s.client, b.keyNames(), b.args())
	if err != nil {
		s.remap()
		return 0, fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
	}
	n, ok := reply.(int64)
	if !ok || n < 0 {
		return 0, fmt.Errorf("%w: %w", limiter.ErrUnavailable, errReply)
	}
	return n, nil
}
