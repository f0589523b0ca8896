package redisstore

import (
	"cmp"
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/scripts"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = 50 * time.Millisecond

// DefaultPrefix is the default of Options.Prefix.
const DefaultPrefix = "weir"

// Options are the options of a Store. Zero values mean the defaults.
type Options struct {
	// Prefix is the prefix of all keys in Redis, DefaultPrefix by default. It must not
	// contain braces.
	Prefix string
	// Client identifies this process for limits with the scope PerClient; it is random by
	// default. A process with the same name continues with its counts, and two processes
	// with the same name count together.
	Client string
	// Timeout is the maximum duration of one call, whatever the context allows;
	// DefaultTimeout by default.
	Timeout time.Duration
	// MaxInFlight is the maximum number of batches of Take that are in progress at a
	// time, for each node; DefaultInFlight by default, one in a cluster. Requests that arrive
	// meanwhile are sent together in the next batch.
	MaxInFlight int
	// CachedRefusals is the maximum number of refusals that are cached in this process, about
	// 200 bytes each; DefaultCachedRefusals by default, none if negative.
	CachedRefusals int
	// Grace is the time after an outage during which the Store is Settling and not yet
	// Available. It should be longer than the delay of any process's circuit breaker, so
	// that all processes have reported what they granted in place of Redis before the
	// first one relies on Redis alone. It is 0 by default.
	Grace time.Duration
}

// DefaultInFlight is the default of Options.MaxInFlight: enough to keep one Redis busy,
// even with some network latency.
const DefaultInFlight = 4

// clusterInFlight is DefaultInFlight in a cluster, where each master gets a part of the requests: fewer and larger
// batches cost Redis less, and callers wait less, see BenchmarkCluster of test/bench/redis.
const clusterInFlight = 1

// DefaultCachedRefusals is the default of Options.CachedRefusals: enough for 100,000 keys under attack.
const DefaultCachedRefusals = 100_000

// A Store is a limiter.AdminStore in Redis. All methods are safe for concurrent use. They
// wait for Redis no longer than the context and Options.Timeout allow. Errors of Redis
// wrap limiter.ErrUnavailable.
type Store struct {
	client      redis.UniversalClient
	names       names
	timeout     time.Duration
	scripts     *scriptSet
	maxInFlight int
	idleLimit   time.Duration
	pipelines   *pipelines
	calls       sync.Pool      // of *call
	batches     sync.Pool      // of *batch
	isCluster   bool           // the scripts of a call need all keys in one slot, except as crossSlot says
	crossSlot   bool           // those that take are tried on keys of all slots of a master
	background  sync.WaitGroup // returns in several slots
	grace       time.Duration
	reports     *reports
	outage      outage
	breaker     *breaker // nil if the client has none, or one for each node
	refusals    *refusalCache
	channel     string                               // on which scripts and changes are published
	processID   string                               // identifies the changes that this process announces
	onChange    atomic.Pointer[func(limiter.Change)] // nil if not set

	ctx     context.Context // of the goroutines that probe and listen; canceled by Close
	cancel  context.CancelFunc
	running sync.WaitGroup // these goroutines
}

// New returns a Store that uses client, a *redis.Client or a *redis.ClusterClient, and
// does not close it. NewClient returns a client with suitable settings; in particular,
// the client must not retry a command that timed out. For Take the Store opens
// connections of its own with the client's options, which Close closes. Hooks of the
// client are not called for Take.
func New(client redis.UniversalClient, o Options) *Store {
	return newStore(client, o, "")
}

func newStore(client redis.UniversalClient, o Options, clock string) *Store {
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.Timeout = cmp.Or(max(0, o.Timeout), DefaultTimeout)
	s := &Store{
		client: client, names: newNames(o.Prefix, o.Client), timeout: o.Timeout,
		grace: o.Grace, reports: newReports(), processID: uuid.NewString(), channel: o.Prefix + ":freed",
	}
	s.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	s.batches.New = func() any { return &batch{store: s} }
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.maxInFlight, s.idleLimit = DefaultInFlight, defaultIdleLimit
	if _, s.isCluster = client.(*redis.ClusterClient); s.isCluster {
		s.maxInFlight, s.crossSlot = clusterInFlight, true
	}
	s.maxInFlight = cmp.Or(max(0, o.MaxInFlight), s.maxInFlight)
	if single, ok := client.(*redis.Client); ok {
		s.breaker = breakerOf(single)
		if db := single.Options().DB; db > 0 { // all databases have the same channels
			s.channel += ":" + strconv.Itoa(db)
		}
	}
	source := scripts.Source{Files: luaFolder(), Clock: clock, Channel: s.channel}
	s.scripts = &scriptSet{source: source, made: map[scriptName]*script{}}
	s.pipelines = &pipelines{store: s, byNode: map[pipelineKey]*pipeline{}}
	o.CachedRefusals = cmp.Or(o.CachedRefusals, DefaultCachedRefusals)
	s.refusals = newRefusalCache(max(o.CachedRefusals, 1))
	if o.CachedRefusals > 0 {
		s.running.Go(s.listen)
	}
	return s
}

// Close waits for the calls in progress, and sends pending reports and refunds, for a few seconds at most. The client stays
// open. After Close, Take returns limiter.ErrUnavailable.
func (s *Store) Close() error {
	s.outage.mu.Lock() // a probe begins before, or not at all
	s.cancel()
	s.outage.mu.Unlock()
	s.running.Wait()
	left, deadline := s.reports.windows.Load(), time.Now().Add(closeTimeout)
	for before := left + 1; left > 0 && left < before && time.Now().Before(deadline); left = s.reports.windows.Load() {
		before = left
		_ = s.probeOnce(context.Background(), s.timeout) // if it fails, what is left is lost
	}
	s.background.Wait()
	s.pipelines.close()
	s.refusals.close()
	return nil
}

// Take implements limiter.Store. It takes one round trip and is atomic in Redis.
// Concurrent requests are sent together (group commit) and decided in order, as if they
// were sent one by one. A claim that is known to be refused for some time is refused
// without a call.
func (s *Store) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	own, others := limiter.CutDeciding(claims)
	if err := limiter.CheckClaims(own); err != nil {
		return err
	}
	switch {
	case len(claims) == 0:
		return s.decide(ctx, "take", claims, [16]byte{}, d)
	case s.refusals.decide(refusalTTL, own, d):
		return nil
	case len(others) > 0:
		return s.orRepeat(s.takeGroups(ctx, own, others, newID(), d), own, d)
	}
	return s.orRepeat(s.takeAfterReports(ctx, own, newID(), d), own, d)
}

// orRepeat returns nil if err, of a call that takes claims, is nil, or if a concurrent call has received a refusal of them
// meanwhile, which it repeats.
func (s *Store) orRepeat(err error, claims []limiter.Claim, d *limiter.Decision) error {
	if err == nil {
		return nil
	}
	if s.recordFailure(err); s.refusals.decide(noExpiry, claims, d) {
		return nil
	}
	return fmt.Errorf("decide by %d limits: %w: %w", len(claims), limiter.ErrUnavailable, err)
}

// Denied reports whether one of claims is known to be refused now, and fills d if so. It
// does not call Redis, which may refuse other claims too.
func (s *Store) Denied(claims []limiter.Claim, d *limiter.Decision) bool {
	return limiter.CheckClaims(claims) == nil && s.refusals.decide(refusalTTL, claims, d)
}

// takeAfterReports sends the pending reports about the claims' windows, and then takes
// the claims, within the timeout of one call.
func (s *Store) takeAfterReports(ctx context.Context, claims []limiter.Claim, id [16]byte, d *limiter.Decision) error {
	if s.reports.windows.Load() > 0 && s.reports.hasAny(claims) {
		reportCtx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		if err := s.sendReports(reportCtx, claims); err != nil {
			return fmt.Errorf("report what was granted: %w", err)
		}
		ctx = reportCtx
	}
	if s.notesApart(claims) {
		return s.takeAndNote(ctx, claims, id, d)
	}
	return s.takeParts(ctx, claims, id, d)
}

// takeParts takes claims, which may have several parts; of several groups they must have one.
func (s *Store) takeParts(ctx context.Context, claims []limiter.Claim, id [16]byte, d *limiter.Decision) error {
	p, err := s.pipelineFor(ctx, claims)
	if err == nil {
		c := s.newCall(claims, id)
		c.notes, c.crossSlot = !s.isCluster, p.crossSlot.Load()
		if err = p.start(ctx, c); err == nil {
			err = p.wait(ctx, c)
		}
		if err == nil {
			c.readInto(d)
			s.reuseCall(c)
			return nil
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.deadline)
		defer cancel()
	}
	if _, others := limiter.CutGroup(claims); !errors.Is(err, errSeveralCalls) || len(others) > 0 {
		return err
	}
	return s.reserve(ctx, claims, id, d)
}

// Peek implements limiter.Store.
func (s *Store) Peek(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	if err := limiter.CheckClaims(claims); err != nil {
		return err
	}
	parts := s.parts(claims)
	if len(parts) < 2 {
		return s.decide(ctx, "peek", claims, [16]byte{}, d)
	}
	err := eachPart(parts, func(p *part) error { return s.decide(ctx, "peek", p.claims, [16]byte{}, &p.Decision) })
	if err == nil {
		mergeParts(claims, parts, d)
	}
	return err
}

// decide makes one decision in a call of its own, without a batch.
func (s *Store) decide(ctx context.Context, name string, claims []limiter.Claim, id [16]byte, d *limiter.Decision) error {
	if len(claims) > 0 && claims[0].RedissonName != "" {
		return s.peekRedisson(ctx, claims, d)
	}
	b := newPayload(s.names, claims)
	b.request(id, len(claims))
	for i := range claims {
		b.claim(&claims[i], i+1)
	}
	numbers, err := s.run(ctx, s.command(name, b))
	if err == nil {
		err = readOne(numbers, claims, d)
	}
	if err != nil {
		return fmt.Errorf("decide by %d limits: %w: %w", len(claims), limiter.ErrUnavailable, err)
	}
	return nil
}

// Refund implements limiter.Store.
func (s *Store) Refund(_ context.Context, claims []limiter.Claim, p limiter.Permit) error {
	return s.StartRefund(claims, p)()
}

// refundArgs returns the script arguments for what p took for claims.
func refundArgs(claims []limiter.Claim, p limiter.Permit) []any {
	return append([]any{p.ID[:idBytes], p.At.UnixMilli()}, costs(claims)...)
}

// costs returns the script arguments for the costs of claims.
func costs(claims []limiter.Claim) (all []any) {
	for i := range claims {
		all = append(all, claims[i].Cost)
	}
	return all
}

// change runs a script that changes the windows of claims and returns its reply, a number
// that is not negative. Errors wrap limiter.ErrUnavailable.
func (s *Store) change(ctx context.Context, name string, claims []limiter.Claim, rest ...any) (int64, error) {
	return countOf(s.run(ctx, s.changeOf(name, claims, rest...)))
}

// run runs a command in a call of its own, within the timeout of one call. It returns the numbers of the reply.
func (s *Store) run(ctx context.Context, c changeCommand) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if c.isRedisson {
		ctx = withRedissonCall(ctx)
	}
	reply, err := c.script.run(ctx, s.client, c.keys, c.args)
	if err != nil {
		s.reloadCluster()
	}
	return numbersOf(reply, redissonError(err))
}

// countOf returns the reply of a script, a number that is not negative. Errors wrap limiter.ErrUnavailable.
func countOf(numbers []int64, err error) (int64, error) {
	if err == nil && (len(numbers) != 1 || numbers[0] < 0) {
		err = wire.ErrReply
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
	}
	return numbers[0], nil
}

//go:embed lua/*.lua lua/*/*.lua
var luaFiles embed.FS

// luaFolder returns the folder lua.
func luaFolder() fs.FS {
	folder, err := fs.Sub(luaFiles, "lua")
	if err != nil {
		panic(err) // its name is valid
	}
	return folder
}

// A script is a text and the hash by which Redis remembers it.
type script struct {
	text, hash string
	call       string // what begins a command that runs it, as it is sent
}

// scriptSet has the scripts of a Store, which are made when they are first asked for, in some milliseconds each.
type scriptSet struct {
	source scripts.Source
	mu     sync.Mutex // guards made
	made   map[scriptName]*script
}

// A scriptName has the arguments of scripts.Source.Text, and whether it is one for keys of several slots.
type scriptName struct {
	name       string
	algorithms uint16
	crossSlot  bool
}

// get returns the script of a name.
func (s *scriptSet) get(n scriptName) *script {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := s.made[n]
	if made == nil {
		source := s.source
		source.CrossSlot = n.crossSlot
		text, err := source.Text(n.name, n.algorithms)
		if err != nil {
			panic(err) // its files are embedded
		}
		sum := sha1.Sum([]byte(text)) // the name Redis gives it, no secret
		hash := hex.EncodeToString(sum[:])
		made = &script{text: text, hash: hash, call: string(wire.AppendBulk(wire.AppendBulk(nil, "EVALSHA"), hash))}
		s.made[n] = made
	}
	return made
}

const allAlgorithms = 1<<limiter.NumAlgorithms - 1

// choose returns the fastest script that takes what p asks for.
func (s *scriptSet) choose(p *payload) *script {
	n, a := scriptName{"many", p.algorithms, p.crossSlot}, bits.TrailingZeros16(p.algorithms)
	switch {
	case bits.OnesCount16(p.algorithms) != 1, len(p.follows)+len(p.notes) > 0,
		p.repeated && !limiter.Algorithm(a).IsPacked():
		n.name, n.algorithms = "take", allAlgorithms // one for all, which Redis knows after the first
	case len(p.index) == 1 && !p.repeated:
		n.name = "one"
	}
	return s.get(n)
}

// onceCmd is a command that the client never sends again: after a timeout it is
// not known whether Redis ran it, and running it twice would count twice.
type onceCmd struct{ *redis.Cmd }

// NoRetry keeps a client from sending the command a second time.
func (onceCmd) NoRetry() bool { return true }

// runner is the part of a client that a store needs.
type runner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// run has Redis run s once: by its hash, and by its text if Redis does not know
// the hash, for then nothing ran the first time.
func (s *script) run(ctx context.Context, r runner, keys []string, args []any) (any, error) {
	val, err := s.send(ctx, r, "evalsha", s.hash, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.send(ctx, r, "eval", s.text, keys, args)
	}
	return val, err
}

// send has Redis run a script, as soon as it can: while the slot of several keys moves, and only some have moved, no master can.
// That one says so is no retry, for nothing ran.
func (*script) send(ctx context.Context, r runner, verb, what string, keys []string, args []any) (any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, what, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	all = append(all, args...)
	for wait := time.Millisecond; ; wait = min(2*wait, maxMoveWait) {
		cmd := onceCmd{redis.NewCmd(ctx, all...)}
		cmd.SetFirstKeyPos(3)
		err := r.Process(ctx, cmd)
		if !redis.HasErrorPrefix(err, "TRYAGAIN") || pause(ctx, wait) != nil {
			return cmd.Val(), err
		}
	}
}

// maxMoveWait is the longest time between two calls while keys move.
const maxMoveWait = 50 * time.Millisecond

// pause waits for d, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err()
}
