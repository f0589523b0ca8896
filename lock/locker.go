package lock

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// A Locker creates the locks of one process. It has one identity in Redis, shared Pub/Sub
// connections, and a queue for each name with waiters. All methods are safe for concurrent
// use.
type Locker struct {
	rdb     redis.UniversalClient
	scripts map[string]*script
	hub     *hub
	gates   gates

	lease    time.Duration // of renewed holds
	poll     time.Duration // longest wait without a message
	call     time.Duration // longest call
	channels Channels

	id     string          // 36 characters, as Redisson's client ids
	owners atomic.Int64    // the number of the last owner
	verb   atomic.Value    // string: PUBLISH or SPUBLISH, once it is known
	life   context.Context // ends with Close, cause ErrClosed
	finish context.CancelCauseFunc

	closeOnce sync.Once

	busy sync.WaitGroup // calls and goroutines that Close waits for

	mu        sync.Mutex // guards what follows; never held over I/O
	closed    bool
	sessions  map[holdKey]*session
	unsettled map[Owner]chan struct{} // closed when no release is in progress
}

// A holdKey identifies an owner and a lock.
type holdKey struct {
	role, name string
	owner      Owner
}

// New returns a Locker for a client of a single server, Sentinel or a cluster. It does not
// connect. The caller owns the client, which must stay open until Close has returned.
// Create the client with ContextTimeoutEnabled, so that waits end at their deadline; its
// retry settings do not make scripts run twice.
func New(rdb redis.UniversalClient, settings ...Setting) *Locker {
	l := &Locker{
		rdb: rdb, scripts: loadScripts(), id: uuid.NewString(),
		lease: DefaultLease, poll: defaultPoll, call: defaultCall,
		sessions: make(map[holdKey]*session), unsettled: make(map[Owner]chan struct{}),
	}
	l.life, l.finish = context.WithCancelCause(context.Background())
	l.gates.byName = make(map[string]*gate)
	l.hub = newHub(l.route)
	for _, set := range settings {
		set(l)
	}
	return l
}

// Close ends all waits and all holds with ErrClosed, releases the locks, closes the Pub/Sub
// connections, and waits for every goroutine: at most a few call timeouts. The contexts of
// the holds are canceled first, so that work stops before another process can begin.
func (l *Locker) Close() { l.closeOnce.Do(l.close) }

func (l *Locker) close() {
	l.mu.Lock()
	l.closed = true
	open := make([]*session, 0, len(l.sessions))
	for _, s := range l.sessions {
		open = append(open, s)
	}
	l.mu.Unlock()
	l.finish(ErrClosed)

	var all sync.WaitGroup
	for _, s := range open {
		all.Go(func() { s.abandon(ErrClosed) })
	}
	all.Wait()
	l.busy.Wait()
	l.hub.close()
}

// begin registers a call or a goroutine for which Close must wait; it returns false if the
// Locker is closed.
func (l *Locker) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.busy.Add(1)
	return true
}

func (l *Locker) end() { l.busy.Done() }

// Owner identifies the holder of a lock: "<uuid of the Locker>:<number>". The zero Owner is
// none.
type Owner struct{ id string }

// String returns o as it is stored in Redis.
func (o Owner) String() string { return o.id }

// NewOwner returns a unique owner.
func (l *Locker) NewOwner() Owner {
	return Owner{l.id + ":" + strconv.FormatInt(l.owners.Add(1), 10)}
}

// bounded returns a context with the call timeout that does not end with the caller's: a
// call that was sent has an effect, and its result must be known.
func (l *Locker) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), l.call)
}

// run runs a script, followed by WAIT if replicas is positive.
func (l *Locker) run(ctx context.Context, s *script, replicas int, keys []string, args ...any) (reply, error) {
	if replicas > 0 {
		return s.runSynced(ctx, l.rdb, replicas, keys, args...)
	}
	return s.run(ctx, l.rdb, keys, args...)
}

// sharded reports whether channels belong to slots; it asks a server of the cluster once.
func (l *Locker) sharded(ctx context.Context) (bool, error) {
	if verb, ok := l.verb.Load().(string); ok {
		return verb == "SPUBLISH", nil
	}
	_, cluster := l.rdb.(*redis.ClusterClient)
	sharded := cluster && l.channels == ShardedChannels
	if cluster && l.channels == AutoChannels {
		err := l.rdb.Do(ctx, "PUBSUB", "SHARDNUMSUB").Err()
		if err != nil && !replied(err) {
			return false, fmt.Errorf("ask for sharded channels: %w", err)
		}
		sharded = err == nil
	}
	verb := "PUBLISH"
	if sharded {
		verb = "SPUBLISH"
	}
	l.verb.Store(verb)
	return sharded, nil
}

// publish returns the command by which scripts publish releases.
func (l *Locker) publish(ctx context.Context) (string, error) {
	if _, err := l.sharded(ctx); err != nil {
		return "", err
	}
	return l.verb.Load().(string), nil
}

// route returns the connection for a channel: to the master of its slot if it is sharded,
// else to any node.
func (l *Locker) route(ctx context.Context, channel string) (route, error) {
	sharded, err := l.sharded(ctx)
	if err != nil {
		return route{}, err
	}
	if !sharded {
		return route{open: func(ctx context.Context) *redis.PubSub { return l.rdb.Subscribe(ctx) }}, nil
	}
	master, err := l.rdb.(*redis.ClusterClient).MasterForKey(ctx, channel)
	if err != nil {
		return route{}, fmt.Errorf("find the master of %s: %w", channel, err)
	}
	return route{
		name:    master.Options().Addr,
		open:    func(ctx context.Context) *redis.PubSub { return master.SSubscribe(ctx) },
		sharded: true,
	}, nil
}
