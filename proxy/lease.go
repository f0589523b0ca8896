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
func (h *lease) renew() {
	if h.isDue(time.Now()) {
		h.refund()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	_ = h.store.Renew(ctx, h.claims, h.permit) // a permit that has expired stays lost; the request continues
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.setTimerLocked()
	}
}

// setTimerLocked sets the timer to the next renewal or the refund.
func (h *lease) setTimerLocked() {
	next := renewInterval
	if h.held != nil {
		next = max(0, min(next, time.Until(h.until)))
	}
	h.timer.Reset(next)
}

// isDue reports whether the permits have been held until now.
func (h *lease) isDue(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held != nil && !now.Before(h.until)
}

// end stops the renewals, and reports whether this call did.
func (h *lease) end() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	stopped := !h.ended
	h.ended = true
	h.timer.Stop()
	return stopped
}

// refund ends a held lease and refunds its permits, unless that has been done.
func (h *lease) refund() {
	if !h.held.remove(h) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	_ = h.store.Refund(ctx, h.claims, h.permit) // otherwise the permits return when the lease ends
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
func (a *heldLeases) add(h *lease, during time.Duration, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed || len(a.leases) >= maxHeldLeases:
		return false
	case a.leases == nil:
		a.leases = map[*lease]struct{}{}
	}
	a.leases[h] = struct{}{}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held, h.until = a, now.Add(during)
	h.setTimerLocked()
	return true
}

// remove ends a lease. It reports false if another call has.
func (a *heldLeases) remove(h *lease) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.leases, h)
	return h.end()
}

// close refunds the permits of all leases, and holds no more.
func (a *heldLeases) close() {
	a.mu.Lock()
	a.closed = true
	leases := a.leases
	a.leases = nil
	a.mu.Unlock()
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
