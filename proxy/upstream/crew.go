package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Errors that end a trip because there is no target to ask.
var (
	errNoTarget = errors.New("no target is healthy")
	errBusy     = errors.New("all targets are busy")
)

// A crew is the servers of one upstream, in all pools that there are of it
// while one replaces another, and the requests that wait for one of them.
type crew struct {
	pools int // guarded by the fleet

	mu      sync.Mutex // guards what follows and all members; never held over I/O
	servers map[string]*server
	waiting []*waiter // in the order they came
	budget  budget
}

// A waiter is a request in the queue of its pool.
type waiter struct {
	asking
	pool *Pool
	turn chan *member // gets one when it is its turn
}

func newCrew() *crew {
	return &crew{servers: map[string]*server{}, budget: newBudget()}
}

// enlist returns the server of a target, made when it is new.
func (c *crew) enlist(name string) *server {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[name]
	if s == nil {
		s = &server{}
		c.servers[name] = s
	}
	s.pools++
	return s
}

// dismiss forgets a server that no pool has any more.
func (c *crew) dismiss(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[name]
	if s.pools--; s.pools == 0 {
		delete(c.servers, name)
	}
}

// acquire finds a member for a request and counts the request on it. When all
// that are fit are full, it waits in the pool's queue: errBusy says that the
// queue is full too, or that the wait was too long. Who has acquired releases.
func (p *Pool) acquire(ctx context.Context, a asking) (*member, error) {
	c := p.crew
	c.mu.Lock()
	m, err := p.choose(time.Now(), a)
	if m != nil || err != nil {
		if m != nil {
			m.busy++
		}
		c.mu.Unlock()
		return m, err
	}
	if len(c.waiting) >= p.queue.Length {
		c.mu.Unlock()
		return nil, errBusy
	}
	w := &waiter{asking: a, pool: p, turn: make(chan *member, 1)}
	c.waiting = append(c.waiting, w)
	c.mu.Unlock()
	return c.wait(ctx, w)
}

// wait returns what w gets. A member that comes as w gives up is not lost.
func (c *crew) wait(ctx context.Context, w *waiter) (*member, error) {
	limit := time.NewTimer(w.pool.queue.Timeout)
	defer limit.Stop()
	err := errBusy
	select {
	case m := <-w.turn:
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
	return <-w.turn, nil
}

// release counts a request off its member and lets the next one go there.
func (c *crew) release(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.busy--
	c.advanceLocked(time.Now())
}

// advanceLocked lets those who wait go on, the first first, as far as there is
// room.
func (c *crew) advanceLocked(now time.Time) {
	for len(c.waiting) > 0 {
		w := c.waiting[0]
		m, _ := w.pool.choose(now, w.asking)
		if m == nil {
			return
		}
		m.busy++
		c.waiting = slices.Delete(c.waiting, 0, 1)
		w.turn <- m
	}
}

// connected notes that m was reached, or could not be.
func (c *crew) connected(m *member, h Health, reached bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reached {
		m.connects(time.Now(), h)
	} else {
		m.refuses(time.Now(), h, rand.Float64())
	}
}

// looked notes how a look at m went.
func (c *crew) looked(m *member, h Health, good bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	m.looked(now, h, good)
	c.advanceLocked(now)
}

// deposit notes a request, so that others may be retried.
func (c *crew) deposit() {
	c.mu.Lock()
	c.budget.deposit()
	c.mu.Unlock()
}

// withdraw reports whether a retry is within the budget, and pays for it.
func (c *crew) withdraw() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.budget.withdraw()
}
