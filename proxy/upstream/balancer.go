package upstream

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/stripe"
)

// A backend is a target in one pool. The group's mutex guards its mutable fields.
type backend struct {
	endpoint
	*targetHealth
	number        int // index in its pool
	weight        float64
	nameHash      uint64  // hash of its name, for rendezvous hashing
	currentWeight float64 // for smooth weighted round robin
}

// A selection contains what selects a backend for one request.
type selection struct {
	hash   string     // for HashBy; "" for none
	tried  []*backend // backends that have failed this request
	stripe int        // in which the request is counted as in flight
}

// pick selects a backend. It returns errNoTarget if none is healthy, and neither a
// backend nor an error if all healthy ones are at MaxConnections. It prefers backends
// that have not failed this request, and then those that are not ejected. Its cost is
// linear in the number of backends.
func (p *Pool) pick(now time.Time, a selection) (*backend, error) {
	candidates := p.scratch[:0]
	best, fit := 0, false
	for _, m := range p.backends {
		if p.unhealthy(m) {
			continue
		}
		fit = true
		if p.config.MaxConnections > 0 && m.inFlight.Sum() >= int64(p.config.MaxConnections) {
			continue
		}
		rank := 1
		if now.Before(m.ejectedUntil) {
			rank++
		}
		if slices.Contains(a.tried, m) {
			rank += 2
		}
		switch {
		case best == 0 || rank < best:
			best, candidates = rank, append(candidates[:0], m)
		case rank == best:
			candidates = append(candidates, m)
		}
		p.scratch = candidates
	}
	switch {
	case !fit:
		return nil, errNoTarget
	case len(candidates) == 0:
		return nil, nil
	case p.config.Balance == config.BalanceHash && a.hash != "":
		return rendezvous(candidates, a.hash), nil
	case p.config.Balance == config.BalanceLeastLoaded:
		candidates = p.leastLoaded(now, candidates)
	}
	return p.roundRobin(now, candidates), nil
}

// admit is pick for a request that is in flight from then on. If it tries a target whose ejection has ended, others
// follow when it has succeeded, and one more tries it after another rest: the outcome of some requests says nothing.
func (p *Pool) admit(now time.Time, a selection) (*backend, error) {
	m, err := p.pick(now, a)
	if m != nil {
		m.inFlight.Add(a.stripe, 1)
		if h := &p.config.Health; h.After > 0 && m.failedConnects >= h.After {
			m.ejectedUntil = now.Add(h.Rest)
		}
	}
	return m, err
}

// hasNoChoice reports whether pick always selects the only backend.
func (p *Pool) hasNoChoice() bool {
	return len(p.backends) == 1 && p.config.MaxConnections == 0 && p.config.Health.Path == ""
}

// unhealthy reports whether active checks have found m to be unhealthy.
func (p *Pool) unhealthy(m *backend) bool { return p.config.Health.Path != "" && m.unhealthy }

// roundRobin selects by smooth weighted round robin, the algorithm of nginx: each
// candidate gains its weight, the one with the highest current weight is selected, and
// the sum of the weights is subtracted from it.
func (p *Pool) roundRobin(now time.Time, candidates []*backend) *backend {
	best, sum := candidates[0], 0.0
	for _, m := range candidates {
		share := m.weight * m.slowStartFactor(now, &p.config.Health)
		sum += share
		m.currentWeight += share
		if m.currentWeight > best.currentWeight {
			best = m
		}
	}
	best.currentWeight -= sum
	return best
}

// leastLoaded returns the candidates with the least load after one more request (least
// connections).
func (p *Pool) leastLoaded(now time.Time, candidates []*backend) []*backend {
	least, kept := math.Inf(1), candidates[:0]
	for _, m := range candidates {
		load := float64(m.inFlight.Sum()+1) / (m.weight * m.slowStartFactor(now, &p.config.Health))
		switch {
		case load < least:
			least, kept = load, append(kept[:0], m)
		case load == least:
			kept = append(kept, m)
		}
	}
	return kept
}

// rendezvous selects by rendezvous hashing (highest random weight), a consistent hash: each candidate gets
// a score from its name and hashBy, and the highest score wins. If a target is removed,
// only its own requests move, in proportion to the weights. The score is that of
// Schindelhauer and Schomaker, weight/-ln(u) with u uniformly distributed between 0 and
// 1.
func rendezvous(candidates []*backend, hashBy string) *backend {
	hash := xxhash.Sum64String(hashBy)
	var best *backend
	var most float64
	for _, m := range candidates {
		var both [16]byte
		binary.BigEndian.PutUint64(both[:8], hash)
		binary.BigEndian.PutUint64(both[8:], m.nameHash)
		u := (float64(xxhash.Sum64(both[:])>>11) + 0.5) / (1 << 53)
		if score := m.weight / -math.Log(u); best == nil || score > most {
			best, most = m, score
		}
	}
	return best
}

// maxProbeBody is the number of bytes of a response that are read, so that the
// connection can be reused.
const maxProbeBody = 64 << 10

// probeUserAgent is the User-Agent of active health checks.
const probeUserAgent = "weir-health"

// checkHealth checks m immediately and then every interval, until ctx is done.
func (p *Pool) checkHealth(ctx context.Context, m *backend, probe func(context.Context, *backend) error) {
	repeat(ctx, p.config.Health.Interval, func() {
		checkCtx, cancel := context.WithTimeout(ctx, p.config.Health.Timeout)
		defer cancel()
		if err := probe(checkCtx, m); ctx.Err() == nil {
			p.group.recordCheck(m, &p.config.Health, err == nil)
		}
	})
}

// repeat calls f immediately and then every interval, until ctx is done.
func repeat(ctx context.Context, interval time.Duration, f func()) {
	every := time.NewTicker(interval)
	defer every.Stop()
	for ctx.Err() == nil {
		f()
		select {
		case <-ctx.Done():
		case <-every.C:
		}
	}
}

// probe sends one active check to m. It returns nil if m is healthy.
func (p *Pool) probe(ctx context.Context, m *backend) error {
	status, err := p.transport().probe(ctx, m, p.config.Health.Path, p.via11)
	err = cmp.Or(err, ctx.Err()) // the response may have come after the timeout
	switch {
	case err != nil:
		return fmt.Errorf("health check of %s: %w", m.name, err)
	case !p.config.Health.Status.Has(status):
		return fmt.Errorf("health check of %s: status %d", m.name, status)
	}
	return nil
}

// slowStartShare is the share of its weight that a recovered target has at first.
const slowStartShare = 0.1

// A targetHealth is the health of one target. The mutex of its group guards it, except for inFlight and
// hasFailed.
type targetHealth struct {
	inFlight  stripe.Users // requests in progress
	hasFailed atomic.Bool  // failedConnects or ejectedUntil is set

	pools          int       // pools that have this target
	failedConnects int       // consecutive failures to connect
	ejectedUntil   time.Time // end of the ejection; until then it is selected only if no other target is available
	failedChecks   int       // consecutive failed active checks
	unhealthy      bool      // result of the active checks
	recoveredAt    time.Time // zero if it has never failed
}

// connectSucceeded records a successful connection.
func (t *targetHealth) connectSucceeded(now time.Time, h *config.Health) {
	if h.After > 0 && t.failedConnects >= h.After {
		t.recoveredAt = now
	}
	t.failedConnects, t.ejectedUntil = 0, time.Time{}
	t.hasFailed.Store(false)
}

// connectFailed records a failure to connect. After h.After consecutive
// failures the target is ejected for h.Rest and up to a quarter more. spread, from
// 0 to 1, selects the additional time, so that several proxies do not return to the
// target at the same moment.
func (t *targetHealth) connectFailed(now time.Time, h *config.Health, spread float64) {
	t.failedConnects++
	t.hasFailed.Store(true)
	if h.After > 0 && t.failedConnects >= h.After {
		t.ejectedUntil = now.Add(h.Rest + time.Duration(spread*float64(h.Rest)/4))
	}
}

// recordCheck records the result of an active check. The target is unhealthy after
// h.After consecutive failures, and healthy after one success.
func (t *targetHealth) recordCheck(now time.Time, h *config.Health, good bool) {
	if !good {
		t.failedChecks++
		t.unhealthy = t.unhealthy || t.failedChecks >= h.After
		return
	}
	if t.unhealthy {
		t.recoveredAt = now
	}
	t.failedChecks, t.unhealthy = 0, false
	t.connectSucceeded(now, h)
}

// slowStartFactor returns the share of its weight that t has. It grows linearly after a
// recovery.
func (t *targetHealth) slowStartFactor(now time.Time, h *config.Health) float64 {
	if t.recoveredAt.IsZero() || h.SlowStart == 0 {
		return 1
	}
	return min(max(float64(now.Sub(t.recoveredAt))/float64(h.SlowStart), slowStartShare), 1)
}

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
	c.admitWaitingLocked(now) // release may have made room for them, and not told them yet
	m, err := p.admit(now, a)
	if m != nil || err != nil {
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
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, w); i >= 0 {
		g.setWaitingLocked(slices.Delete(g.waiting, i, i+1))
		return nil, err
	}
	return <-w.ready, nil // sent by whoever has removed w
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

// admitWaitingLocked admits waiting requests in order of arrival. One whose pool has no backend for it does not delay those
// of another pool of the upstream, which may have other targets.
func (g *group) admitWaitingLocked(now time.Time) {
	var full *Pool
	g.setWaitingLocked(slices.DeleteFunc(g.waiting, func(w *waiter) bool {
		if w.pool == full {
			return false
		}
		m, _ := w.pool.admit(now, w.selection)
		if m == nil {
			full = w.pool
			return false
		}
		w.ready <- m
		return true
	}))
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
		c = &group{stripes: g.stripes, backends: map[string]*targetHealth{}, retries: retryReserve}
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
