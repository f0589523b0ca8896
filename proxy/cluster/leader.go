package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// DefaultLease is how long the lead outlives a node that died.
const DefaultLease = 10 * time.Second

// A Task is work that one node of a cluster does for all, again and again.
type Task struct {
	Name  string
	Every time.Duration // from the end of one run to the beginning of the next
	// Run does the work once and says in a few words what it did. The context
	// ends while this node can still be sure that it leads; what is changed for
	// all goes through a fence besides. A run that is cut short is made again, by
	// whoever leads then: doing it twice is as good as once.
	Run func(ctx context.Context, t Term) (did string, err error)
}

// A Term is the time for which one node leads.
type Term struct {
	Token int64     // larger than that of every earlier term
	Since time.Time // by the store's clock
}

// A Run is what came of a task once.
type Run struct {
	Task  string    `json:"task"`
	Node  string    `json:"node"`
	At    time.Time `json:"at"` // when it began
	Took  float64   `json:"took_ms"`
	Did   string    `json:"did,omitempty"`
	Error string    `json:"error,omitempty"`
	Next  time.Time `json:"next"` // when it begins again
}

// A Leadership is who leads, and what the tasks have come to.
type Leadership struct {
	Node  string    `json:"node"` // empty while nobody leads
	Since time.Time `json:"since,omitzero"`
	Token int64     `json:"token,omitempty"`
	Tasks []Run     `json:"tasks"` // by name; without those that have not run yet
}

// LeaderOptions are what a Leader is told.
type LeaderOptions struct {
	// Client reaches the Redis that the nodes share; nil for a process that
	// shares nothing and so always leads.
	Client redis.UniversalClient
	Prefix string        // of all keys
	ID     string        // of this node
	Lease  time.Duration // DefaultLease when 0
	Tasks  []Task
	// Took, Lost and Ran are told when this node begins to lead, when it does no
	// more, and why, and what each run came to. They may be nil, and are called by
	// several goroutines.
	Took func(Term)
	Lost func(t Term, cause error)
	Ran  func(Run)
}

// A Leader takes part in a leader election: it runs tasks as long as this node leads,
// and competes for the lead when it does not. Of all nodes under one prefix one leads at a time; when it dies,
// another does after at most the lease. It is safe for concurrent use.
type Leader struct {
	id         string
	tasks      []Task
	leadership leadership
	took       func(Term)
	lost       func(Term, error)
	ran        func(Run)
}

// leadership is what one node at a time has: leader election.
type leadership interface {
	// lead calls work each time that this node leads, until ctx is done.
	lead(ctx context.Context, work func(context.Context, Term)) error
	// note writes down a run, unless another leads: then ErrDeposed.
	note(ctx context.Context, t Term, r Run) error
	current(ctx context.Context) (Leadership, error)
}

// NewLeader makes a Leader; Run begins to compete.
func NewLeader(o LeaderOptions) *Leader {
	l := &Leader{id: o.ID, tasks: o.Tasks, took: o.Took, lost: o.Lost, ran: o.Ran}
	if o.Lease <= 0 {
		o.Lease = DefaultLease
	}
	if o.Client == nil {
		l.leadership = newMemoryLeadership(o.ID)
	} else {
		l.leadership = newRedisLeadership(o.Client, o.Prefix, o.ID, o.Lease)
	}
	return l
}

// Run competes and leads until ctx is done; then it gives up the lead, so that
// another node need not wait for the lease to end.
func (l *Leader) Run(ctx context.Context) error { return l.leadership.lead(ctx, l.term) }

// Current is who leads now, as any node can tell, and what the tasks came to last.
func (l *Leader) Current(ctx context.Context) (Leadership, error) { return l.leadership.current(ctx) }

// term runs all tasks until ctx ends.
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

// repeat runs a task, one run after another, until ctx ends or the lead turns out
// to be another's.
func (l *Leader) repeat(ctx context.Context, t Term, task Task) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil { // it looks at the clock: the process may have been stopped
			return
		}
		if errors.Is(l.runOnce(ctx, t, task), ErrDeposed) {
			return
		}
		timer.Reset(task.Every)
	}
}

// runOnce runs a task and writes down what came of it.
func (l *Leader) runOnce(ctx context.Context, t Term, task Task) error {
	began := time.Now()
	did, err := task.Run(ctx, t)
	ended := time.Now()
	r := Run{Task: task.Name, Node: l.id, At: began.UTC(), Took: ms(ended.Sub(began)), Did: did, Next: ended.Add(task.Every).UTC()}
	if err != nil {
		r.Error = err.Error()
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
