package cluster

import (
	"context"
	_ "embed"
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
	// leadership, and Ran after each run of a task. They may be nil, and must be
	// safe for concurrent use.
	Acquired func(Term)
	Lost     func(t Term, cause error)
	Ran      func(view.TaskRun)
}

// A Leader takes part in a leader election: it competes for the leadership, and runs the tasks while this node
// is the leader. Of all nodes with the same prefix one is the leader at a time; if it dies, another one takes
// over after at most the lease. A Leader is safe for concurrent use.
type Leader struct {
	options    LeaderOptions
	leadership leadership
}

// leadership is the election among the nodes.
type leadership interface {
	// lead calls work each time this node becomes the leader, until ctx is
	// done.
	lead(ctx context.Context, work func(context.Context, Term)) error
	// note stores the result of a run. It returns ErrDeposed if another node is
	// the leader.
	note(ctx context.Context, t Term, r view.TaskRun) error
	current(ctx context.Context) (view.Leadership, error)
}

// NewLeader returns a Leader. It does not compete before Run.
func NewLeader(o LeaderOptions) *Leader {
	l := &Leader{options: o}
	if o.Lease <= 0 {
		o.Lease = DefaultLease
	}
	if o.Client == nil {
		l.leadership = newMemory(o.ID)
	} else {
		l.leadership = newRedisLeadership(o.Client, o.Prefix, o.ID, o.Lease)
	}
	return l
}

// Run competes and leads until ctx is done; then it resigns, so that the next
// leader need not wait for the end of the lease.
func (l *Leader) Run(ctx context.Context) error { return l.leadership.lead(ctx, l.term) }

// Current returns the current leader and the last runs of the tasks. It works on
// every node.
func (l *Leader) Current(ctx context.Context) (view.Leadership, error) {
	return l.leadership.current(ctx)
}

// term runs all tasks until ctx is done.
func (l *Leader) term(ctx context.Context, t Term) {
	if l.options.Acquired != nil {
		l.options.Acquired(t)
	}
	var all sync.WaitGroup
	for _, task := range l.options.Tasks {
		all.Go(func() { l.repeat(ctx, t, task) })
	}
	<-ctx.Done()
	all.Wait()
	if l.options.Lost != nil {
		l.options.Lost(t, context.Cause(ctx))
	}
}

// repeat runs a task periodically until ctx is done or the leadership is lost.
func (l *Leader) repeat(ctx context.Context, t Term, task Task) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil { // checks the clock: the process may have been suspended
			return
		}
		if errors.Is(l.runOnce(ctx, t, task), ErrDeposed) {
			return
		}
		timer.Reset(task.Every)
	}
}

// runOnce runs a task once and stores the result.
func (l *Leader) runOnce(ctx context.Context, t Term, task Task) error {
	began := time.Now()
	did, err := task.Run(ctx, t)
	ended := time.Now()
	r := view.TaskRun{Task: task.Name, Node: l.options.ID, At: began.UTC(), Took: ms(ended.Sub(began)), Did: did, Next: ended.Add(task.Every).UTC()}
	if err != nil {
		r.Error = proxy.ErrorText(err)
	}
	if l.options.Ran != nil {
		l.options.Ran(r)
	}
	if errors.Is(err, ErrDeposed) {
		return err
	}
	return l.leadership.note(ctx, t, r)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

//go:embed fence.lua
var fenceScript string

// ErrDeposed reports that another node has become the leader. Nothing was
// changed.
var ErrDeposed = errors.New("another node is the leader")

// A fence protects data that only the leader may change (fencing token): each
// script first checks, in the same step, whether its caller is the latest leader.
// A former leader that was suspended or partitioned, and does not know yet that
// it lost the leadership, is rejected.
type fence struct {
	rdb redis.UniversalClient
	key string // of the hash with the current leader
}

// fenced returns text as a script with the check of a fence; KEYS[1] and
// ARGV[1] belong to the fence.
func fenced(text string) *redis.Script { return redis.NewScript(fenceScript + text) }

// run runs s with the token of t. Its error is ErrDeposed, or an error of
// Redis.
func (f fence) run(ctx context.Context, s *redis.Script, t Term, keys []string, args ...any) (any, error) {
	reply, err := s.Run(ctx, f.rdb, append([]string{f.key}, keys...), append([]any{t.Token}, args...)...).Result()
	if redis.HasErrorPrefix(err, "DEPOSED") {
		return nil, ErrDeposed
	}
	return reply, err
}

// leaderTTL is how long the last leader and its runs are kept when no node is
// left.
const leaderTTL = 24 * time.Hour

var (
	//go:embed lead.lua
	leadScript string
	//go:embed note.lua
	noteScript string
)

// redisLeadership is the leadership of a cluster, held as a lock in Redis.
type redisLeadership struct {
	rdb   redis.UniversalClient
	node  string
	lease time.Duration

	lock, leading, runs string // keys

	elector, noted *redis.Script
}

func newRedisLeadership(rdb redis.UniversalClient, prefix, node string, lease time.Duration) *redisLeadership {
	p := prefix + ":{cluster}:"
	return &redisLeadership{
		rdb: rdb, node: node, lease: lease, lock: p + "lead", leading: p + "leader", runs: p + "tasks",
		elector: redis.NewScript(leadScript), noted: fenced(noteScript),
	}
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

// lead implements leadership.
func (o *redisLeadership) lead(ctx context.Context, work func(context.Context, Term)) error {
	locker := lock.New(o.rdb, lock.WithWatchdog(o.lease))
	defer locker.Close()
	c := &candidate{Lockable: locker.Reentrant(o.lock)}
	return lock.Lead(ctx, c, func(ctx context.Context) {
		t, err := o.startTerm(ctx, c.owner.String())
		if err == nil { // otherwise the lock is released and acquired again
			work(ctx, t)
		}
	})
}

// startTerm stores that this node is the leader.
func (o *redisLeadership) startTerm(ctx context.Context, owner string) (Term, error) {
	reply, err := o.elector.Run(ctx, o.rdb, []string{o.lock, o.leading}, owner, o.node, leaderTTL.Milliseconds()).Int64Slice()
	if err != nil {
		return Term{}, fmt.Errorf("take the lead: %w", err)
	}
	if len(reply) != 2 {
		return Term{}, fmt.Errorf("take the lead: %w", errReply)
	}
	return Term{Token: reply[0], Since: time.UnixMilli(reply[1]).UTC()}, nil
}

// fence returns the fence that rejects former leaders.
func (o *redisLeadership) fence() fence { return fence{o.rdb, o.leading} }

// note implements leadership.
func (o *redisLeadership) note(ctx context.Context, t Term, r view.TaskRun) error {
	if _, err := o.fence().run(ctx, o.noted, t, []string{o.runs}, r.Task, encode(r), leaderTTL.Milliseconds()); err != nil {
		return fmt.Errorf("note a run of %s: %w", r.Task, err)
	}
	return nil
}

// current implements leadership.
func (o *redisLeadership) current(ctx context.Context) (view.Leadership, error) {
	var held *redis.IntCmd
	var who, runs *redis.MapStringStringCmd
	_, err := o.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		held, who, runs = p.Exists(ctx, o.lock), p.HGetAll(ctx, o.leading), p.HGetAll(ctx, o.runs)
		return nil
	})
	if err != nil {
		return view.Leadership{}, fmt.Errorf("read leader: %w", err)
	}
	l := view.Leadership{Tasks: []view.TaskRun{}}
	for _, name := range slices.Sorted(maps.Keys(runs.Val())) {
		r, err := decode[view.TaskRun](runs.Val()[name])
		if err != nil {
			return view.Leadership{}, fmt.Errorf("read leader: %w", err)
		}
		l.Tasks = append(l.Tasks, r)
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
