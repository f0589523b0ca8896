package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/view"
)

// DefaultLease is the default lease of the leadership: the longest time until a
// dead leader is replaced.
const DefaultLease = 10 * time.Second

// A Task is periodic work that the leader does for all nodes.
type Task struct {
	Name  string
	Every time.Duration // pause between the end of a run and the start of the next
	// Run does the work once and describes the result in a few words. ctx is done
	// before the leadership can be lost; shared data is changed through a fence
	// in addition. An interrupted run is repeated by the next leader, so Run must
	// be idempotent.
	Run func(ctx context.Context, t Term) (did string, err error)
}

// A Term is the time during which one node is the leader.
type Term struct {
	Token int64     // fencing token: larger than that of every earlier term
	Since time.Time // by the store's clock
}

// LeaderOptions configure a Leader.
type LeaderOptions struct {
	// Client connects to the Redis of the cluster; nil for a single process,
	// which is always the leader.
	Client redis.UniversalClient
	Prefix string        // of all keys
	ID     string        // of this node
	Lease  time.Duration // DefaultLease when 0
	Tasks  []Task
	// Acquired is called when this node becomes the leader, Lost when it loses the
	// leadership, and Ran after each run of a task. They must be safe for concurrent use.
	Acquired func(Term)
	Lost     func(t Term, cause error)
	Ran      func(view.TaskRun)
}

// A Leader takes part in a leader election: it competes for the leadership, and runs the tasks while this node
// is the leader. Of all nodes with the same prefix one is the leader at a time; if it dies, another one takes
// over after at most the lease. A Leader is safe for concurrent use.
type Leader struct {
	options LeaderOptions
	state   state
}

// NewLeader returns a Leader. It does not compete before Run.
func NewLeader(o LeaderOptions) *Leader {
	return &Leader{o, newState(o.Client, o.Prefix)}
}

// Run competes and leads until ctx is done; then it resigns, so that the next
// leader need not wait for the end of the lease.
func (l *Leader) Run(ctx context.Context) error { return l.state.lead(ctx, l.options, l.term) }

// Current returns the current leader and the last runs of the tasks. It works on
// every node.
func (l *Leader) Current(ctx context.Context) (view.Leadership, error) {
	return l.state.current(ctx)
}

// term runs all tasks until ctx is done.
func (l *Leader) term(ctx context.Context, t Term) {
	l.options.Acquired(t)
	var all sync.WaitGroup
	for _, task := range l.options.Tasks {
		all.Go(func() { l.repeat(ctx, t, task) })
	}
	<-ctx.Done()
	all.Wait()
	l.options.Lost(t, context.Cause(ctx))
}

// repeat runs a task periodically until ctx is done or the leadership is lost. The error of ctx tells that by the clock: the
// process may have been suspended.
func (l *Leader) repeat(ctx context.Context, t Term, task Task) {
	for ctx.Err() == nil && !errors.Is(l.runOnce(ctx, t, task), ErrDeposed) {
		select {
		case <-time.After(task.Every):
		case <-ctx.Done():
		}
	}
}

// runOnce runs a task once and stores the result.
func (l *Leader) runOnce(ctx context.Context, t Term, task Task) error {
	began := time.Now()
	did, err := task.Run(ctx, t)
	ended := time.Now()
	r := view.TaskRun{
		Task: task.Name, Node: l.options.ID, At: began.UTC(), Took: float64(ended.Sub(began).Microseconds()) / 1000, Did: did, Next: ended.Add(task.Every).UTC(), Error: proxy.ErrorText(err),
	}
	l.options.Ran(r)
	if errors.Is(err, ErrDeposed) {
		return err
	}
	return l.state.note(ctx, t, r)
}

// ErrDeposed reports that another node has become the leader. Nothing was
// changed.
var ErrDeposed = errors.New("another node is the leader")

// runLeading runs a script that changes data which only the leader may change. Its token is a fencing token: the script
// first checks, in the same step, whether its caller is the latest leader. A former leader that was suspended or
// partitioned, and does not know yet that it lost the leadership, gets ErrDeposed.
func (k keyspace) runLeading(ctx context.Context, t Term, script string, names []string, args ...any) (any, error) {
	reply, err := k.run(ctx, script, append([]string{"leader"}, names...), append([]any{t.Token}, args...)...).Result()
	if redis.HasErrorPrefix(err, "DEPOSED") {
		return nil, ErrDeposed
	}
	return reply, err
}

// leaderTTL is how long the last leader and its runs are kept when no node is
// left.
const leaderTTL = 24 * time.Hour

// A redisState is the state of a cluster in Redis: the alert queue, the audit trail, the leadership, which is held as a
// lock, the statistics, and values by name.
type redisState struct{ keyspace }

// newState returns the state of the nodes that share rdb and prefix or, if rdb is nil, of a single process.
func newState(rdb redis.UniversalClient, prefix string) state {
	if rdb == nil {
		return newMemory()
	}
	return redisState{newKeyspace(rdb, prefix)}
}

// A candidate is a lock that remembers its last owner.
type candidate struct {
	lock.Lockable
	owner lock.Owner
}

// Lock implements lock.Lockable.
func (c *candidate) Lock(ctx context.Context, options ...lock.LockOption) (*lock.Hold, error) {
	hold, err := c.Lockable.Lock(ctx, options...)
	if err == nil {
		c.owner = hold.Owner()
	}
	return hold, err
}

// lead implements state.
func (r redisState) lead(ctx context.Context, o LeaderOptions, work func(context.Context, Term)) error {
	locker := lock.New(r.rdb, lock.WithWatchdog(cmp.Or(o.Lease, DefaultLease)))
	defer locker.Close()
	c := &candidate{Lockable: locker.Reentrant(r.prefix + "lead")}
	return lock.Lead(ctx, c, func(ctx context.Context) {
		t, err := r.startTerm(ctx, c.owner.String(), o.ID)
		if err == nil { // otherwise the lock is released and acquired again
			work(ctx, t)
		}
	})
}

// startTerm stores that node, by that owner of the lock, is the leader.
func (r redisState) startTerm(ctx context.Context, owner, node string) (Term, error) {
	reply, err := r.run(ctx, "lead", []string{"lead", "leader"}, owner, node, leaderTTL.Milliseconds()).Int64Slice()
	if err != nil {
		return Term{}, fmt.Errorf("take the lead: %w", err)
	}
	if len(reply) != 2 {
		return Term{}, fmt.Errorf("take the lead: %w", errReply)
	}
	return Term{Token: reply[0], Since: time.UnixMilli(reply[1]).UTC()}, nil
}

// note implements state.
func (r redisState) note(ctx context.Context, t Term, run view.TaskRun) error {
	if _, err := r.runLeading(ctx, t, "note", []string{"tasks"}, run.Task, encode(run), leaderTTL.Milliseconds()); err != nil {
		return fmt.Errorf("note a run of %s: %w", run.Task, err)
	}
	return nil
}

// current implements state.
func (r redisState) current(ctx context.Context) (view.Leadership, error) {
	var held *redis.IntCmd
	var who, runs *redis.MapStringStringCmd
	_, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		held, who, runs = p.Exists(ctx, r.prefix+"lead"), p.HGetAll(ctx, r.prefix+"leader"), p.HGetAll(ctx, r.prefix+"tasks")
		return nil
	})
	if err != nil {
		return view.Leadership{}, fmt.Errorf("read leader: %w", err)
	}
	l := view.Leadership{Tasks: []view.TaskRun{}}
	for _, name := range slices.Sorted(maps.Keys(runs.Val())) {
		run, err := decode[view.TaskRun](runs.Val()[name])
		if err != nil {
			return view.Leadership{}, fmt.Errorf("read leader: %w", err)
		}
		l.Tasks = append(l.Tasks, run)
	}
	if held.Val() == 0 {
		return l, nil
	}
	token, err1 := strconv.ParseInt(who.Val()["token"], 10, 64)
	since, err2 := strconv.ParseInt(who.Val()["since"], 10, 64)
	if err1 == nil && err2 == nil {
		l.Node, l.Token, l.Since = who.Val()["node"], token, time.UnixMilli(since).UTC()
	}
	return l, nil
}
