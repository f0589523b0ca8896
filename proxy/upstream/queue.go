package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/stripe"
)

// Errors of requests for which no target is available.
var (
	errNoTarget  = errors.New("no target is healthy")
	errQueueFull = errors.New("all targets are busy")
)

// A group is the shared state of one upstream: the health of its targets and the queue
// of waiting requests. During a reload, the old and the new pool of the upstream share
// it.
type group struct {
	pools        int // guarded by Groups.mu
	stripes      int
	numWaiting   atomic.Int32 // length of waiting
	isBudgetFull atomic.Bool

	mu       sync.Mutex // guards the fields below and all backends; never held over I/O
	backends map[string]*targetHealth
	waiting  []*waiter // in order of arrival
	retries  float64   // that the retry budget has saved up
}

// A waiter is a request in the queue.
type waiter struct {
	selection
	pool  *Pool
	ready chan *backend // receives the backend of the request
}

func newGroup(stripes int) *group {
	return &group{stripes: stripes, backends: map[string]*targetHealth{}, retries: retryReserve}
}

// join returns the health of a target, which is created if it is new.
func (g *group) join(name string) *targetHealth {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.backends[name]
	if s == nil {
		s = &targetHealth{inFlight: stripe.NewUsers(g.stripes)}
		g.backends[name] = s
	}
	s.pools++
	return s
}

// leave removes the health of a target that no pool has any more.
func (g *group) leave(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.backends[name]
	if s.pools--; s.pools == 0 {
		delete(g.backends, name)
	}
}

// acquire selects a backend for a request and increments its number of requests in
// flight. If all available backends are at MaxConnections, the request waits in the
// queue of the pool. errQueueFull reports that the queue is full or the wait has timed
// out. The caller must call release.
func (p *Pool) acquire(ctx context.Context, now time.Time, a selection) (*backend, error) {
	if p.hasNoChoice() {
		p.backends[0].inFlight.Add(a.stripe, 1)
		return p.backends[0], nil
	}
	c := p.group
	c.mu.Lock()
	m, err := p.pick(now, a)
	if m != nil || err != nil {
		if m != nil {
			m.inFlight.Add(a.stripe, 1)
		}
		c.mu.Unlock()
		return m, err
	}
	if len(c.waiting) >= p.config.Queue.Length {
		c.mu.Unlock()
		return nil, errQueueFull
	}
	w := &waiter{selection: a, pool: p, ready: make(chan *backend, 1)}
	c.setWaitingLocked(append(c.waiting, w))
	c.admitWaitingLocked(now) // release may not have seen w
	c.mu.Unlock()
	return c.wait(ctx, w)
}

// wait waits until w gets a backend. If one arrives at the moment of the timeout, it is
// returned.
func (g *group) wait(ctx context.Context, w *waiter) (*backend, error) {
	limit := time.NewTimer(w.pool.config.Queue.Timeout)
	defer limit.Stop()
	err := errQueueFull
	select {
	case m := <-w.ready:
		return m, nil
	case <-limit.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	g.mu.Lock()
	if i := slices.Index(g.waiting, w); i >= 0 {
		g.setWaitingLocked(slices.Delete(g.waiting, i, i+1))
		g.mu.Unlock()
		return nil, err
	}
	g.mu.Unlock()
	return <-w.ready, nil
}

// setWaitingLocked sets the queue.
func (g *group) setWaitingLocked(all []*waiter) {
	g.waiting = all
	g.numWaiting.Store(int32(len(all)))
}

// release decrements the number of requests in flight, in the stripe of acquire, and admits waiting
// requests. A request that is about to wait either is seen here, or sees that there is room.
func (g *group) release(m *backend, stripe int) {
	m.inFlight.Add(stripe, -1)
	if g.numWaiting.Load() > 0 {
		g.mu.Lock()
		g.admitWaitingLocked(time.Now())
		g.mu.Unlock()
	}
}

// admitWaitingLocked admits waiting requests in order of arrival, as long as there are
// backends for them.
func (g *group) admitWaitingLocked(now time.Time) {
	for len(g.waiting) > 0 {
		w := g.waiting[0]
		m, _ := w.pool.pick(now, w.selection)
		if m == nil {
			return
		}
		m.inFlight.Add(w.stripe, 1)
		g.setWaitingLocked(slices.Delete(g.waiting, 0, 1))
		w.ready <- m
	}
}

// recordConnect records whether a connection to m was established.
func (g *group) recordConnect(m *backend, h *config.Health, reached bool) {
	if reached && !m.hasFailed.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if reached {
		m.connectSucceeded(time.Now(), h)
	} else {
		m.connectFailed(time.Now(), h, rand.Float64())
	}
}

// recordCheck records the result of an active health check of m.
func (g *group) recordCheck(m *backend, h *config.Health, good bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	m.recordCheck(now, h, good)
	g.admitWaitingLocked(now)
}

// deposit adds the share of one request to the retry budget.
func (g *group) deposit() {
	if g.isBudgetFull.Load() {
		return
	}
	g.mu.Lock()
	g.retries = min(g.retries+retryRatio, retryReserve)
	g.isBudgetFull.Store(g.retries >= retryReserve)
	g.mu.Unlock()
}

// withdraw reports whether the retry budget allows one retry, and takes it from the
// budget.
func (g *group) withdraw() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isBudgetFull.Store(false)
	if g.retries < 1 {
		return false
	}
	g.retries--
	return true
}

// Groups keeps the health of targets and the queues of upstreams across reloads. A
// target that was ejected by one pool stays ejected in the pool that replaces it. The
// state of an upstream is removed when its last pool is closed. Groups is safe for
// concurrent use.
type Groups struct {
	Tunnels http1.Tunnels // of WebSockets, which outlive pools
	stripes int

	mu     sync.Mutex // guards what follows
	groups map[string]*group
}

// NewGroups returns empty Groups, which count requests in so many stripes: Request.Stripe is less.
func NewGroups(stripes int) *Groups { return &Groups{stripes: stripes, groups: map[string]*group{}} }

// join returns the group of the upstream, which is created if it is new.
func (g *Groups) join(name string) *group {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.groups[name]
	if c == nil {
		c = newGroup(g.stripes)
		g.groups[name] = c
	}
	c.pools++
	return c
}

// leave removes the group if no pool uses it any more.
func (g *Groups) leave(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.groups[name]
	if c.pools--; c.pools == 0 {
		delete(g.groups, name)
	}
}
