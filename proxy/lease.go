package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// renewInterval is the interval at which the concurrent permits of a request are renewed. Two
// renewals may fail before the lease ends.
const renewInterval = config.Lease / 3

// A lease renews the concurrent permits of one request while it is in progress, and while its
// upstream may still be working on it. A request that ends before the first renewal costs only a
// timer. A lease shares no memory with the exchange, because it may outlive it.
type lease struct {
	store  limiter.AdminStore
	claims []limiter.Claim
	permit limiter.Permit

	mu    sync.Mutex // guards what follows; never held over I/O
	timer *time.Timer
	ended bool
	held  *heldLeases // set when the request has ended
	until time.Time   // when the permits are then refunded
}

// startLease starts to renew the claims that are concurrent. It returns nil if there are none.
func startLease(store limiter.AdminStore, claims []limiter.Claim, p limiter.Permit) *lease {
	var held []limiter.Claim
	for i := range claims {
		if concurrent(&claims[i]) {
			held = append(held, claims[i])
		}
	}
	if held == nil {
		return nil
	}
	h := &lease{store: store, claims: held, permit: p}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(renewInterval, h.renew)
	return h
}

func concurrent(c *limiter.Claim) bool { return c.Limit.Algorithm.HasLeases() }

// renew extends the lease, or refunds its permits if they have been held long enough. A failed call
// is repeated after the next interval.
func (l *lease) renew() {
	if l.isDue(time.Now()) {
		l.refund()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	_ = l.store.Renew(ctx, l.claims, l.permit) // a permit that has expired stays lost; the request continues
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.setTimerLocked()
	}
}

// setTimerLocked sets the timer to the next renewal or the refund.
func (l *lease) setTimerLocked() {
	next := renewInterval
	if l.held != nil {
		next = max(0, min(next, time.Until(l.until)))
	}
	l.timer.Reset(next)
}

// isDue reports whether the permits have been held until now.
func (l *lease) isDue(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held != nil && !now.Before(l.until)
}

// end stops the renewals, and reports whether this call did.
func (l *lease) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	stopped := !l.ended
	l.ended = true
	l.timer.Stop()
	return stopped
}

// refund ends a held lease and refunds its permits, unless that has been done.
func (l *lease) refund() {
	if !l.held.remove(l) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	_ = l.store.Refund(ctx, l.claims, l.permit) // otherwise the permits return when the lease ends
}

// maxHeldLeases is the maximum number of held leases; each takes some hundred bytes.
const maxHeldLeases = 50_000

// heldLeases are the leases of requests whose clients left while the upstream may have been working on
// them. An upstream is not told of that, or does not look, so its permits are not refunded at once:
// otherwise a client that sends and leaves, again and again, would make the upstream work on more
// requests at a time than the limit allows. It is safe for concurrent use.
type heldLeases struct {
	mu     sync.Mutex // guards what follows; never held over I/O
	leases map[*lease]struct{}
	closed bool
}

// add holds a lease for some time after now, and then refunds its permits. It reports false if it does
// not, because there are too many or the proxy is closing.
func (l *heldLeases) add(h *lease, during time.Duration, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed || len(l.leases) >= maxHeldLeases:
		return false
	case l.leases == nil:
		l.leases = map[*lease]struct{}{}
	}
	l.leases[h] = struct{}{}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held, h.until = l, now.Add(during)
	h.setTimerLocked()
	return true
}

// remove ends a lease. It reports false if another call has.
func (l *heldLeases) remove(h *lease) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.leases, h)
	return h.end()
}

// close refunds the permits of all leases, and holds no more.
func (l *heldLeases) close() {
	l.mu.Lock()
	l.closed = true
	leases := l.leases
	l.leases = nil
	l.mu.Unlock()
	var started []func() error
	for h := range leases {
		if h.end() {
			started = append(started, startRefund(h.store, h.claims, h.permit))
		}
	}
	for _, wait := range started {
		_ = wait() // otherwise the permits return when their leases end
	}
}
