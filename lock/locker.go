package lock

import (
	"container/list"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// A Locker creates the locks of one process. It has one identity in Redis, one set of
// pub/sub connections, and one queue for each name that is waited for. All methods are
// safe for concurrent use.
type Locker struct {
	rdb         redis.UniversalClient
	scripts     map[string]*script
	hub         *hub
	localQueues localQueues

	lease        time.Duration // of holds that are renewed
	pollInterval time.Duration // longest wait without a message
	callTimeout  time.Duration // of one call to Redis
	channels     Channels

	id          string          // UUID of 36 characters, like Redisson's client IDs
	owners      atomic.Int64    // number of the last owner
	publishVerb atomic.Value    // string: PUBLISH or SPUBLISH; not set before the first use
	ctx         context.Context // canceled by Close with the cause ErrClosed
	cancel      context.CancelCauseFunc

	closeOnce sync.Once

	running sync.WaitGroup // calls and goroutines that Close waits for

	mu       sync.Mutex // guards the fields below; never held during I/O
	closed   bool
	sessions map[holdKey]*session
	// pending are closed when the background releases of an owner have ended or, for an owner that acquire has made up,
	// an acquisition of a lock by an owner that others may use too.
	pending map[Owner]chan struct{}
}

// A holdKey identifies what an owner holds.
type holdKey struct {
	namespace, name string
	owner           Owner
}

// New returns a Locker that uses rdb, a client of a single server, a Sentinel group or a
// cluster. It does not connect. The caller keeps ownership of rdb, which must stay open
// until Close has returned. For calls that end at the deadline of their context, create
// the client with ContextTimeoutEnabled. Scripts are not retried, whatever the client's
// retry settings are.
func New(rdb redis.UniversalClient, settings ...LockerOption) *Locker {
	l := &Locker{
		rdb: rdb, scripts: loadScripts(), id: uuid.NewString(),
		lease: DefaultLease, pollInterval: defaultPoll, callTimeout: defaultCall,
		sessions: make(map[holdKey]*session), pending: make(map[Owner]chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.localQueues.byName = make(map[string]*localQueue)
	l.hub = newHub(l.findRoute)
	for _, set := range settings {
		set(l)
	}
	return l
}

// Close ends all waits and all holds with ErrClosed, releases the locks, closes the
// pub/sub connections, and waits for all goroutines, which takes at most a few call
// timeouts. The contexts of the holds end first, so that guarded work can stop before
// another process acquires the lock.
func (l *Locker) Close() { l.closeOnce.Do(l.close) }

func (l *Locker) close() {
	l.mu.Lock()
	l.closed = true
	sessions := slices.Collect(maps.Values(l.sessions))
	l.mu.Unlock()
	l.cancel(ErrClosed)

	var all sync.WaitGroup
	for _, s := range sessions {
		all.Go(func() { s.closeWith(ErrClosed) })
	}
	all.Wait()
	l.running.Wait()
	l.hub.close()
}

// beginCall registers a call or a goroutine that Close must wait for. It returns false if
// the Locker is closed.
func (l *Locker) beginCall() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.running.Add(1)
	return true
}

func (l *Locker) endCall() { l.running.Done() }

// An Owner identifies the holder of a lock: "<UUID of the Locker>:<number>". The zero
// Owner holds nothing.
type Owner struct{ id string }

// String returns o as it is stored in Redis.
func (o Owner) String() string { return o.id }

// NewOwner returns a unique owner.
func (l *Locker) NewOwner() Owner {
	return Owner{l.id + ":" + strconv.FormatInt(l.owners.Add(1), 10)}
}

// callContext returns a context with the call timeout that does not end with ctx: a call
// that was sent has an effect, so its reply must be processed.
func (l *Locker) callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), l.callTimeout)
}

// publishCommand returns the command by which scripts publish a release: SPUBLISH if channels are sharded. In a cluster
// it asks a server, until one says that it knows them or not.
func (l *Locker) publishCommand(ctx context.Context) (string, error) {
	if verb, ok := l.publishVerb.Load().(string); ok {
		return verb, nil
	}
	_, cluster := l.rdb.(*redis.ClusterClient)
	sharded := cluster && l.channels == ShardedChannels
	if cluster && l.channels == AutoChannels {
		err := l.rdb.Do(ctx, "PUBSUB", "SHARDNUMSUB").Err()
		if err != nil && isTemporary(err) {
			return "", fmt.Errorf("ask for sharded channels: %w", err)
		}
		sharded = err == nil
	}
	verb := "PUBLISH"
	if sharded {
		verb = "SPUBLISH"
	}
	l.publishVerb.Store(verb)
	return verb, nil
}

// findRoute returns the connection for channel: to the master of its slot if channels are
// sharded, otherwise to any server.
func (l *Locker) findRoute(ctx context.Context, channel string) (route, error) {
	verb, err := l.publishCommand(ctx)
	if err != nil {
		return route{}, err
	}
	if verb == "PUBLISH" {
		return route{open: func(ctx context.Context) *redis.PubSub { return l.rdb.Subscribe(ctx) }}, nil
	}
	master, err := l.rdb.(*redis.ClusterClient).MasterForKey(ctx, channel)
	if err != nil {
		return route{}, fmt.Errorf("find the master of %s: %w", channel, err)
	}
	open := func(ctx context.Context) *redis.PubSub { return master.SSubscribe(ctx) }
	return route{name: master.Options().Addr, open: open, sharded: true}, nil
}

const (
	maxStreak  = 16                    // consecutive local handovers while other processes wait
	yieldDelay = 10 * time.Millisecond // delay after a streak, which lets other processes go first
	streakTTL  = time.Second           // time without use after which a streak is reset
)

// localQueues has a first-in, first-out queue for each name, so that one goroutine of
// this process at a time contends for it. A thousand waiters cause Redis the load of one.
type localQueues struct {
	mu     sync.Mutex // guards the fields below and the queues; never held during I/O
	byName map[string]*localQueue
}

// A localQueue is the queue of one name.
type localQueue struct {
	waiters list.List   // of chan struct{}; the front one contends
	streak  int         // consecutive releases while other processes waited
	expiry  *time.Timer // removes the queue if it stays empty; nil before it was empty
}

// A ticket is a position in a localQueue. leave must be called once.
type ticket struct {
	queues  *localQueues
	name    string
	element *list.Element
}

// wait waits until the caller is at the front of the queue. If this process has released
// the lock maxStreak times in a row while other processes waited, it then also waits for
// yieldDelay.
func (l *localQueues) wait(ctx context.Context, name string) (*ticket, error) {
	p, turn := l.join(name)
	select {
	case <-turn:
	case <-ctx.Done():
	}
	if ctx.Err() == nil && l.resetStreak(name) {
		sleep[struct{}](ctx, nil, yieldDelay)
	}
	if ctx.Err() != nil {
		p.leave(0)
		return nil, context.Cause(ctx)
	}
	return p, nil
}

// join appends the caller to the queue; turn is closed when it is at the front.
func (l *localQueues) join(name string) (p *ticket, turn chan struct{}) {
	turn = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	gt := l.byName[name]
	if gt == nil {
		gt = new(localQueue)
		l.byName[name] = gt
	}
	if gt.waiters.Len() == 0 {
		close(turn)
	}
	if gt.expiry != nil {
		gt.expiry.Stop()
	}
	return &ticket{queues: l, name: name, element: gt.waiters.PushBack(turn)}, turn
}

// resetStreak resets the streak if it has reached maxStreak, and reports whether it has.
func (l *localQueues) resetStreak(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	gt := l.byName[name]
	if gt.streak < maxStreak {
		return false
	}
	gt.streak = 0
	return true
}

// leave removes t from the queue and admits the next waiter. notified is the number of
// subscribers that received the release. They are all in other processes, because waiters
// of this one do not subscribe meanwhile.
func (t *ticket) leave(notified int64) {
	g := t.queues
	g.mu.Lock()
	defer g.mu.Unlock()
	gt := g.byName[t.name]
	isFirst := gt.waiters.Front() == t.element
	gt.waiters.Remove(t.element)
	if !isFirst {
		return
	}
	if gt.streak++; notified == 0 {
		gt.streak = 0
	}
	switch {
	case gt.waiters.Len() > 0:
		close(gt.waiters.Front().Value.(chan struct{}))
	case gt.streak == 0:
		delete(g.byName, t.name)
	default: // for streakTTL it keeps the streak of a caller that acquires the lock again and again
		gt.expiry = time.AfterFunc(streakTTL, func() { g.removeEmpty(t.name, gt) })
	}
}

// removeEmpty removes gt if it is empty.
func (l *localQueues) removeEmpty(name string, gt *localQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName[name] == gt && gt.waiters.Len() == 0 {
		delete(l.byName, name)
	}
}
