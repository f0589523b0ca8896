package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Errors that end a request because there is no target to ask.
var (
	errNoTarget  = errors.New("no target is healthy")
	errQueueFull = errors.New("all targets are busy")
)

// A group is the servers of one upstream, in all pools that there are of it
// while one replaces another, and the requests that wait for one of them.
type group struct {
	pools int // guarded by the Groups

	mu       sync.Mutex // guards what follows and all members; never held over I/O
	backends map[string]*targetHealth
	waiting  []*waiter // in the order they came
	budget   retryBudget
}

// A waiter is a request in the queue of its pool.
type waiter struct {
	selection
	pool  *Pool
	ready chan *backend // gets one when it is its turn
}

func newGroup() *group {
	return &group{backends: map[string]*targetHealth{}, budget: newRetryBudget()}
}

// join returns the server of a target, made when it is new.
func (c *group) join(name string) *targetHealth {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.backends[name]
	if s == nil {
		s = &targetHealth{}
		c.backends[name] = s
	}
	s.pools++
	return s
}

// leave forgets a server that no pool has any more.
func (c *group) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.backends[name]
	if s.pools--; s.pools == 0 {
		delete(c.backends, name)
	}
}

// acquire finds a member for a request and counts the request on it. When all
// that are fit are full, it waits in the pool's queue: errQueueFull reports that
// the queue is full too, or that the wait was too long. Who has acquired
// releases.
func (p *Pool) acquire(ctx context.Context, now time.Time, a selection) (*backend, error) {
	c := p.group
	c.mu.Lock()
	m, err := p.pick(now, a)
	if m != nil || err != nil {
		if m != nil {
			m.inFlight++
		}
		c.mu.Unlock()
		return m, err
	}
	if len(c.waiting) >= p.queue.Length {
		c.mu.Unlock()
		return nil, errQueueFull
	}
	w := &waiter{selection: a, pool: p, ready: make(chan *backend, 1)}
	c.waiting = append(c.waiting, w)
	c.mu.Unlock()
	return c.wait(ctx, w)
}

// wait returns what w gets. A member that comes as w gives up is not lost.
func (c *group) wait(ctx context.Context, w *waiter) (*backend, error) {
	limit := time.NewTimer(w.pool.queue.Timeout)
	defer limit.Stop()
	err := errQueueFull
	select {
	case m := <-w.ready:
		return m, nil
	case <-limit.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.mu.Lock()
	if i := slices.Index(c.waiting, w); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.mu.Unlock()
		return nil, err
	}
	c.mu.Unlock()
	return <-w.ready, nil
}

// release counts a request off its member and lets the next one go there.
func (c *group) release(m *backend) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.inFlight--
	if len(c.waiting) > 0 {
		c.admitWaitingLocked(time.Now())
	}
}

// admitWaitingLocked lets those who wait go on, the first first, as far as there is
// room.
func (c *group) admitWaitingLocked(now time.Time) {
	for len(c.waiting) > 0 {
		w := c.waiting[0]
		m, _ := w.pool.pick(now, w.selection)
		if m == nil {
			return
		}
		m.inFlight++
		c.waiting = slices.Delete(c.waiting, 0, 1)
		w.ready <- m
	}
}

// recordConnect notes that m was reached, or could not be.
func (c *group) recordConnect(m *backend, h Health, reached bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reached {
		if m.failedConnects > 0 || !m.ejectedUntil.IsZero() {
			m.connectSucceeded(time.Now(), h)
		}
	} else {
		m.connectFailed(time.Now(), h, rand.Float64())
	}
}

// recordCheck notes how a look at m went.
func (c *group) recordCheck(m *backend, h Health, good bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	m.recordCheck(now, h, good)
	c.admitWaitingLocked(now)
}

// deposit notes a request, so that others may be retried.
func (c *group) deposit() {
	c.mu.Lock()
	c.budget.deposit()
	c.mu.Unlock()
}

// withdraw reports whether a retry is within the budget, and pays for it.
func (c *group) withdraw() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.budget.withdraw()
}
