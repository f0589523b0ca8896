package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

const (
	// probeInterval is the average time between two probes of Redis.
	probeInterval = 200 * time.Millisecond
	// patientTimeout is the timeout of calls that no request waits for. It is longer than
	// that of a decision, so that a busy machine is not mistaken for an outage, and that
	// all processes notice at about the same time that Redis is reachable again.
	patientTimeout = time.Second
	// closeTimeout is how long Close goes on to send what is pending.
	closeTimeout = 5 * time.Second
)

// An outage is the time for which other stores decide in place of Redis. It starts when
// the circuit breaker opens. It ends Options.Grace after Redis replies again, when each
// process has reported what it granted, so that none grants permits that another has
// already granted. A single failure does not start an outage.
type outage struct {
	isActive   atomic.Bool // written with mu held
	isSettling atomic.Bool // isActive, but Redis replies and has the reports

	mu        sync.Mutex // guards the fields below; never held during I/O
	isProbing bool
}

// Available reports whether Redis can be relied on: it is false from the time at which
// the circuit breaker opens until Options.Grace after Redis is reachable again. In a
// cluster it is always true.
func (s *Store) Available() bool {
	return !s.outage.isActive.Load()
}

// Settling reports whether Redis is reachable again and has the reports of this process,
// while other processes may not have sent theirs yet. The caller should grant no more
// than its share in addition.
func (s *Store) Settling() bool {
	return s.outage.isSettling.Load()
}

// Report records permits that were granted in place of Redis. They are sent as soon as
// Redis is reachable, before the next decision about any of these claims. Redis counts
// them even if none are left, with the time at which they were granted. Up to 128 grants
// in a window keep their IDs, in up to 50,000 windows; grants in further windows are not
// reported. Report does not wait.
func (s *Store) Report(claims []limiter.Claim, p limiter.Permit) {
	s.reports.add(time.Now(), claims, p)
	s.watchOutage(false)
}

// Charge implements limiter.AdminStore: it reports what is missing, at once or when Redis is reachable again, within the
// bounds of Report. If two processes charge the same, a counter counts both, and a log one.
func (s *Store) Charge(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	if err := limiter.CheckCharges(claims); err != nil {
		return err
	}
	p = p.Charge()
	missing := slices.DeleteFunc(slices.Clone(claims), func(c limiter.Claim) bool { return s.reports.knows(&c, p) })
	s.reports.add(time.Now(), missing, p)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if s.sendReports(ctx, missing) != nil {
		s.watchOutage(false) // it sends what is pending
	}
	return nil
}

// Reported returns how many permits were reported to Redis, and how many were dropped
// because of the bounds of Report, since the Store was created. Each window of a limit
// counts separately.
func (s *Store) Reported() (sent, dropped int64) {
	return s.reports.reported.Load(), s.reports.dropped.Load()
}

// Withdraw cancels the report of what p took for claims, as far as Redis was not told of it yet. It returns the
// claims of what was not pending, because Redis was told of it or it was dropped.
func (s *Store) Withdraw(claims []limiter.Claim, p limiter.Permit) (others []limiter.Claim) {
	return s.reports.withdraw(claims, p)
}

// StartRefundReported refunds what was reported of p: what Redis was not told of yet is not reported, and the rest
// is refunded as by StartRefund, with the time at which Redis counts it. What was dropped is not refunded, and neither
// is what a counter counts if another process has reported it, or this one before its last 50,000 grants.
func (s *Store) StartRefundReported(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	var waits []func() error
	for _, c := range s.Withdraw(claims, p) {
		if at, found := s.reports.toldAt(time.Now(), &c, p); found || !isCounter(&c) {
			waits = append(waits, s.StartRefund([]limiter.Claim{c}, limiter.Permit{ID: p.ID, At: cmp.Or(at, p.At)}))
		}
	}
	return func() (failed error) {
		for _, wait := range waits {
			failed = errors.Join(failed, wait())
		}
		return failed
	}
}

// isCounter reports whether Redis counts the permits of c without their IDs.
func isCounter(c *limiter.Claim) bool {
	return c.RedissonName == "" && !c.Limit.Algorithm.HasLog() || c.RedissonName != "" && c.RedissonFormat == limiter.RedissonWindow
}

// RenewReported restarts the lease of what was reported of p: in the report if that is pending, or in Redis.
func (s *Store) RenewReported(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	others := s.reports.renew(time.Now(), claims, p)
	if len(others) == 0 || !s.Available() {
		return nil
	}
	return s.Renew(ctx, others, p)
}

// recordFailure starts an outage if err reports an open circuit breaker, or has opened it: if calls are rarer than it lets
// one through to try, it rejects none.
func (s *Store) recordFailure(err error) {
	isOpen := errors.Is(err, ErrOpen) && !errors.Is(err, errRedissonOpen) || s.breaker != nil && s.breaker.own.IsOpen()
	if isOpen && !s.isCluster && s.grace > 0 {
		s.watchOutage(true)
	}
}

// watchOutage starts probing if it is not in progress.
func (s *Store) watchOutage(active bool) {
	a := &s.outage
	a.mu.Lock()
	defer a.mu.Unlock()
	if active {
		a.isActive.Store(true)
	}
	if a.isProbing || s.ctx.Err() != nil {
		return
	}
	a.isProbing = true
	s.running.Go(s.probe)
}

// probe probes Redis, sends the reports, and waits until the other processes have sent
// theirs. The interval is random, so that processes do not probe at the same time.
func (s *Store) probe() {
	var reachableSince time.Time
	for {
		err := s.probeOnce(s.ctx, max(s.timeout, patientTimeout))
		s.outage.isSettling.Store(err == nil && s.outage.isActive.Load())
		switch {
		case err != nil:
			reachableSince = time.Time{}
			s.recordFailure(err)
		case reachableSince.IsZero():
			reachableSince = time.Now()
		}
		if err == nil && s.endOutage(reachableSince) ||
			pause(s.ctx, probeInterval/2+rand.N(probeInterval)) != nil {
			return
		}
	}
}

// probeOnce pings Redis, and then sends the reports, and refunds that have failed. A Redis that hangs will later
// process everything it was sent, so a probe does not count permits.
func (s *Store) probeOnce(ctx context.Context, timeout time.Duration) error {
	if err := s.ping(ctx, timeout); err != nil {
		return err
	}
	if s.breaker != nil && s.outage.isActive.Load() && !s.outage.isSettling.Load() {
		s.breaker.own.Close()
	}
	err := s.sendReports(ctx, nil)
	s.refundAll(s.reports.takeRefunds())
	return err
}

// ping calls Redis even while the circuit breaker is open. Otherwise the end of an outage
// would depend on the time of the last failure in each process.
func (s *Store) ping(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, insideBreaker{}, true), timeout)
	defer cancel()
	if client, ok := s.client.(*redis.Client); ok {
		return s.probeWrite(ctx, withTimeout(client, timeout), limiter.Key{})
	}
	return s.probeWrite(ctx, s.client, limiter.Key{})
}

// endOutage ends the outage if Redis has been reachable for long enough, and reports
// whether probing can stop.
func (s *Store) endOutage(reachableSince time.Time) bool {
	a := &s.outage
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(reachableSince) >= s.grace {
		a.isActive.Store(false)
		a.isSettling.Store(false)
	}
	a.isProbing = a.isActive.Load() || s.reports.windows.Load() > 0
	return !a.isProbing
}

// An evidence is what the result of a call says about the health of Redis.
type evidence int

const (
	evidenceUp   evidence = iota // Redis has replied
	evidenceDown                 // unreachable, no reply in time, access denied, or full
	evidenceBusy                 // temporarily unable, or a connection was closed
	evidenceNone                 // the call was canceled
)

// evidenceOf classifies the error of a call. A connection that was closed may be the
// fault of the network or of a server that restarts; the next dial tells. A server that
// is loading, running a script, or no longer a master is busy too.
func evidenceOf(err error) evidence {
	dial, _ := errors.AsType[*net.OpError](err)
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return evidenceUp
	case errors.As(err, new(redis.Error)):
		return evidenceOfReply(err)
	case errors.Is(err, context.Canceled):
		return evidenceNone
	case dial != nil && dial.Op == "dial":
		return evidenceDown
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return evidenceBusy
	}
	return evidenceDown
}

// evidenceOfReply classifies an error reply: Redis works, unless it temporarily cannot
// serve calls. A rejected password is rejected again at the next attempt, and a Redis that is full, or
// cannot save, stays so.
func evidenceOfReply(err error) evidence {
	switch {
	case hasCode(err, "NOAUTH", "WRONGPASS", "OOM", "MISCONF", "NOREPLICAS"):
		return evidenceDown
	case hasCode(err, "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOPERM", "max number of clients"):
		return evidenceBusy
	}
	return evidenceUp
}

// hasCode reports whether Redis replied with an error that has one of codes, also if a command of a script had it: Redis
// before 7 puts it into words of its own then.
func hasCode(err error, codes ...string) bool {
	reply, isReply := errors.AsType[redis.Error](err)
	return isReply && slices.ContainsFunc(codes, func(code string) bool {
		return redis.HasErrorPrefix(err, code) || strings.Contains(reply.Error(), ": -"+code+" ")
	})
}

// WhyNotWritable returns why Redis refuses writes, if err says so, and "" otherwise.
func WhyNotWritable(err error) string {
	for code, why := range map[string]string{
		"OOM":        "it is full; raise its maxmemory",
		"MISCONF":    "it cannot save to its disk; see its log",
		"READONLY":   "it is a read-only replica; write the address of its master, or use mode sentinel or cluster",
		"MASTERDOWN": "it is a replica that has lost its master",
		"NOREPLICAS": "it has too few replicas; see its min-replicas-to-write",
	} {
		if hasCode(err, code) {
			return why
		}
	}
	return ""
}

// ErrOpen reports that Redis was not called because the circuit breaker is open after too
// many consecutive failures. An error that wraps it also wraps the last failure.
var ErrOpen = errors.New("redis circuit breaker open")

// errRedissonOpen reports that this is the circuit breaker of limiters shared with
// Redisson, and not that of others.
var errRedissonOpen = errors.New("limiters shared with Redisson")

// A breaker is the circuit breaker of one Redis. After a number of consecutive failures
// it returns ErrOpen without a call for a delay; then it lets one call through and closes
// or opens depending on its result. evidenceOf defines what a failure is. Limiters shared
// with Redisson have a circuit of their own, so that a misuse of them by other programs
// does not affect other limits.
type breaker struct {
	own, redisson *circuit
	masters       *wire.Masters // nil without Sentinel
}

func newBreaker(after uint, rest time.Duration) breaker {
	return breaker{own: newCircuit(after, rest, ErrOpen), redisson: newCircuit(after, rest, fmt.Errorf("%w: %w", errRedissonOpen, ErrOpen))}
}

// breakerQuery is the context key of a command that returns the breaker of a client and
// does not call Redis.
type breakerQuery struct{}

// breakerOf returns the breaker that NewClient has added to a client, or nil.
func breakerOf(client *redis.Client) (b *breaker) {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), breakerQuery{}, &b))
	cancel() // without a breaker the command is not sent either
	_ = client.Process(ctx, redis.NewCmd(ctx, "ping"))
	return b
}

// withTimeout returns client with another timeout of reads and writes. Like client, it asks the
// breaker: what the client itself returns has no hooks.
func withTimeout(client *redis.Client, timeout time.Duration) *redis.Client {
	patient := client.WithTimeout(timeout)
	if b := breakerOf(client); b != nil {
		patient.AddHook(*b)
	}
	return patient
}

// DialHook does not count failures, because the command that needs the connection does.
// It records the master that the client has found.
func (b breaker) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err == nil {
			b.masters.Set(c.RemoteAddr().String())
		}
		return c, err
	}
}

// ProcessHook counts one command.
func (b breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return b.guard(ctx, []redis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook counts one pipeline as one call.
func (b breaker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return b.guard(ctx, cmds, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

// guard calls next if the circuit is closed, and records its result.
func (b breaker) guard(ctx context.Context, cmds []redis.Cmder, next func(context.Context) error) error {
	if at, ok := ctx.Value(breakerQuery{}).(**breaker); ok {
		*at = &b
		return nil
	}
	if ctx.Value(insideBreaker{}) != nil {
		return next(ctx)
	}
	c := b.own
	if ctx.Value(redissonCall{}) != nil {
		c = b.redisson
	}
	if err := c.acquire(); err != nil {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
	err := next(context.WithValue(ctx, insideBreaker{}, true))
	c.record(err)
	return err
}

// insideBreaker is the context key of a call that has a permit already: a new connection
// sends HELLO within the command that it is opened for.
type insideBreaker struct{}

// redissonCall is the context key of a call about limiters shared with Redisson.
type redissonCall struct{}

func withRedissonCall(ctx context.Context) context.Context {
	return context.WithValue(ctx, redissonCall{}, true)
}

// A circuit is the state of a breaker for one kind of calls.
type circuit struct {
	circuitbreaker.CircuitBreaker[any]
	delay     time.Duration
	openErr   error
	lastErr   atomic.Pointer[error] // returned while the circuit is open
	busySince atomic.Int64          // ns; start of the current period of evidenceBusy only; 0 if there is none
}

func newCircuit(after uint, rest time.Duration, open error) *circuit {
	c := &circuit{delay: rest, openErr: open}
	c.CircuitBreaker = circuitbreaker.NewBuilder[any]().
		WithFailureThreshold(after).WithDelay(rest).WithSuccessThreshold(1).Build()
	c.lastErr.Store(&open)
	return c
}

// acquire returns nil if Redis may be called, whose result must be recorded then, or the reason why not. Without a
// circuit it may be called.
func (c *circuit) acquire() error {
	if c == nil || c.TryAcquirePermit() {
		return nil
	}
	return *c.lastErr.Load()
}

// record records the result of a call. A canceled call is no evidence, except in a
// half-open circuit, which needs a result. Neither is a Redis that is busy, until it has
// been busy for as long as the delay of the circuit.
func (c *circuit) record(err error) {
	if c == nil {
		return
	}
	e := evidenceOf(err)
	now := time.Now().UnixNano()
	if e == evidenceUp || e == evidenceDown {
		c.busySince.Store(0)
	}
	if e == evidenceBusy && (c.busySince.CompareAndSwap(0, now) || now-c.busySince.Load() < int64(c.delay)) {
		e = evidenceNone
	}
	switch {
	case e == evidenceUp:
		c.RecordSuccess()
	case e == evidenceNone && !c.IsHalfOpen():
	default:
		lastErr := fmt.Errorf("%w: %w", c.openErr, err)
		c.lastErr.Store(&lastErr)
		c.RecordFailure()
	}
}
