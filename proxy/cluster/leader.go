package cluster

import (
	"context"
	_ "embed"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy"
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

// A Run is the result of one run of a task.
type Run struct {
	Task  string    `json:"task"`
	Node  string    `json:"node"`
	At    time.Time `json:"at"` // when it began
	Took  float64   `json:"took_ms"`
	Did   string    `json:"did,omitempty"`
	Error string    `json:"error,omitempty"`
	Next  time.Time `json:"next"` // when it begins again
}

// A Leadership is the current leader and the last runs of its tasks.
type Leadership struct {
	Node  string    `json:"node"` // empty if there is no leader
	Since time.Time `json:"since,omitzero"`
	Token int64     `json:"token,omitempty"`
	Tasks []Run     `json:"tasks"` // by name; without those that have not run yet
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
	Ran      func(Run)
}

// A Leader takes part in a leader election: it competes for the leadership, and runs the tasks while this node
// is the leader. Of all nodes with the same prefix one is the leader at a time; if it dies, another one takes
// over after at most the lease. A Leader is safe for concurrent use.
type Leader struct {
	id         string
	tasks      []Task
	leadership leadership
	took       func(Term)
	lost       func(Term, error)
	ran        func(Run)
}

// leadership is the election among the nodes.
type leadership interface {
	// lead calls work each time this node becomes the leader, until ctx is
	// done.
	lead(ctx context.Context, work func(context.Context, Term)) error
	// note stores the result of a run. It returns ErrDeposed if another node is
	// the leader.
	note(ctx context.Context, t Term, r Run) error
	current(ctx context.Context) (Leadership, error)
}

// NewLeader returns a Leader. It does not compete before Run.
func NewLeader(o LeaderOptions) *Leader {
	l := &Leader{id: o.ID, tasks: o.Tasks, took: o.Acquired, lost: o.Lost, ran: o.Ran}
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
func (l *Leader) Current(ctx context.Context) (Leadership, error) { return l.leadership.current(ctx) }

// term runs all tasks until ctx is done.
func (l *Leader) term(ctx context.Context, t Term) {
	if l.took != nil {
		l.took(t)
	}
	var all sync.WaitGroup
	for _, task := range l.tasks {
		all.Go(func() { l.repeat(ctx, t, task) })
	}
	<-ctx.Done()
	all.Wait()
	if l.lost != nil {
		l.lost(t, context.Cause(ctx))
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
	r := Run{Task: task.Name, Node: l.id, At: began.UTC(), Took: ms(ended.Sub(began)), Did: did, Next: ended.Add(task.Every).UTC()}
	if err != nil {
		r.Error = proxy.ErrorText(err)
	}
	if l.ran != nil {
		l.ran(r)
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
