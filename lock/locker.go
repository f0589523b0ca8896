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

// A Locker makes the locks of one process. It has one identity in Redis, one
// pub/sub hub, and one queue for each name that is waited for. All its methods
// are safe for concurrent use.
type Locker struct {
	rdb         redis.UniversalClient
	scripts     map[string]*script
	hub         *hub
	localQueues localQueues

	lease        time.Duration // of watched holds
	pollInterval time.Duration // longest wait without a message
	callTimeout  time.Duration // longest call
	channels     Channels

	id          string          // 36 characters, as Redisson's client ids
	owners      atomic.Int64    // the number of the last owner
	publishVerb atomic.Value    // string: PUBLISH or SPUBLISH, once it is known
	ctx         context.Context // ends with Close, cause ErrClosed
	cancel      context.CancelCauseFunc

	closeOnce sync.Once

	running sync.WaitGroup // calls and goroutines that Close waits for

	mu              sync.Mutex // guards what follows; never held over I/O
	closed          bool
	sessions        map[holdKey]*session
	pendingReleases map[Owner]chan struct{} // closed when nothing is being given back
}

// A holdKey says who holds what.
type holdKey struct {
	namespace, name string
	owner           Owner
}

// New makes a Locker over a client of a single server, a Sentinel group or a
// cluster. It dials nothing. The client stays the caller's, and must stay open
// until Close has returned. For waits that end on time, the client should be
// made with ContextTimeoutEnabled; no setting of its retries makes a script run
// twice.
func New(rdb redis.UniversalClient, settings ...LockerOption) *Locker {
	l := &Locker{
		rdb: rdb, scripts: loadScripts(), id: uuid.NewString(),
		lease: DefaultLease, pollInterval: defaultPoll, callTimeout: defaultCall,
		sessions: make(map[holdKey]*session), pendingReleases: make(map[Owner]chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.localQueues.byName = make(map[string]*localQueue)
	l.hub = newHub(l.findRoute)
	for _, set := range settings {
		set(l)
	}
	return l
}

// Close ends all waits and all holds with ErrClosed, gives the locks back, ends
// the pub/sub connections and waits for every goroutine: at most a few call
// timeouts. The contexts of the holds end first, so that guarded work hears of
// it before another process can begin.
func (l *Locker) Close() { l.closeOnce.Do(l.close) }

func (l *Locker) close() {
	l.mu.Lock()
	l.closed = true
	open := make([]*session, 0, len(l.sessions))
	for _, s := range l.sessions {
		open = append(open, s)
	}
	l.mu.Unlock()
	l.cancel(ErrClosed)

	var all sync.WaitGroup
	for _, s := range open {
		all.Go(func() { s.closeWith(ErrClosed) })
	}
	all.Wait()
	l.running.Wait()
	l.hub.close()
}

// beginCall announces a call or a goroutine that Close has to wait for; it returns
// false when the Locker is closed.
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

// Owner identifies who holds a lock: "<uuid of the Locker>:<number>". The zero
// Owner is nobody.
type Owner struct{ id string }

// String is o as it stands in Redis.
func (o Owner) String() string { return o.id }

// NewOwner returns an owner that nobody else has.
func (l *Locker) NewOwner() Owner {
	return Owner{l.id + ":" + strconv.FormatInt(l.owners.Add(1), 10)}
}

// callContext gives a call its own time, whatever becomes of the caller: a call that
// was sent has an effect, and somebody must hear of it.
func (l *Locker) callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), l.callTimeout)
}

// run runs a script, with WAIT for replicas if there are any to wait for.
func (l *Locker) run(ctx context.Context, s *script, replicas int, keys []string, args ...any) (reply, error) {
	if replicas > 0 {
		return s.runSynced(ctx, l.rdb, replicas, keys, args...)
	}
	return s.run(ctx, l.rdb, keys, args...)
}

// usesShardedChannels reports whether channels belong to slots; it asks a server of a
// cluster once.
func (l *Locker) usesShardedChannels(ctx context.Context) (bool, error) {
	if verb, ok := l.publishVerb.Load().(string); ok {
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
	l.publishVerb.Store(verb)
	return sharded, nil
}

// publishCommand is the command by which scripts tell of a release.
func (l *Locker) publishCommand(ctx context.Context) (string, error) {
	if _, err := l.usesShardedChannels(ctx); err != nil {
		return "", err
	}
	return l.publishVerb.Load().(string), nil
}

// findRoute says where channel is heard: on the master of its slot if it is
// sharded, else anywhere.
func (l *Locker) findRoute(ctx context.Context, channel string) (route, error) {
	sharded, err := l.usesShardedChannels(ctx)
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
