package limit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// RenewInterval is the interval at which the concurrent permits of a request are renewed. Two
// renewals may fail before the lease ends.
const RenewInterval = config.Lease / 3

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
	held  *heldLeases // set when the request has ended, after which the permits are refunded some time later
}

// startLease starts to renew the claims that are concurrent. It returns nil if there are none.
func startLease(store limiter.AdminStore, claims []limiter.Claim, p limiter.Permit) *lease {
	held := appendConcurrent(nil, claims)
	if held == nil {
		return nil
	}
	h := &lease{store: store, claims: held, permit: p}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(RenewInterval, h.renew)
	return h
}

func concurrent(c *limiter.Claim) bool { return c.Limit.Algorithm.HasLeases() }

// appendConcurrent appends those of claims that are concurrent.
func appendConcurrent(to, claims []limiter.Claim) []limiter.Claim {
	for i := range claims {
		if concurrent(&claims[i]) {
			to = append(to, claims[i])
		}
	}
	return to
}

// renew extends the lease. A failed call is repeated after the next interval. If the lease has ended, because the store
// could not be reached, has lost its data, or this process was stopped for so long, the permits count again: their
// request is in progress. Those that are held after it may have been refunded by another node.
func (l *lease) renew() {
	err := l.store.Renew(context.Background(), l.claims, l.permit)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	if errors.Is(err, limiter.ErrNotHeld) && l.held == nil {
		l.store.Report(l.claims, l.permit)
	}
	l.timer.Reset(RenewInterval)
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
	_ = l.store.StartRefund(l.claims, l.permit)() // otherwise the permits return when the lease ends
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

// add holds a lease for some time, and then refunds its permits. It reports false if it does
// not, because there are too many or the proxy is closing.
func (l *heldLeases) add(h *lease, during time.Duration) bool {
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
	h.held = l
	time.AfterFunc(during, h.refund)
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
			started = append(started, h.store.StartRefund(h.claims, h.permit))
		}
	}
	for _, wait := range started {
		_ = wait() // otherwise the permits return when their leases end
	}
}

// headerDelay is how long the header of a response may wait for the release of concurrent permits,
// so that header and body are sent together if the store is as fast as usual.
const headerDelay = 5 * time.Millisecond

// HasConcurrent reports whether a has concurrent permits to release.
func (a *Admission) HasConcurrent() bool {
	return slices.ContainsFunc(a.TakenPermits, func(t TakenPermit) bool { return t.hasConcurrent() })
}

// RenewPermits renews the concurrent permits of a now.
func (a *Admission) RenewPermits() {
	for i := range a.TakenPermits {
		if t := &a.TakenPermits[i]; t.hasConcurrent() {
			t.lease.renew()
		}
	}
}

// hasConcurrent reports whether t has concurrent permits to release.
func (t *TakenPermit) hasConcurrent() bool { return t.lease != nil && !t.released }

// Release releases the concurrent permits of q, whatever its outcome, before the end of its
// response is sent. A client that has received the complete response and sends its next request is
// then not refused because of the previous one. Only the end of the response waits for the store.
// If the store is slow, flush is called to send what is available. The end of a response without a
// body is its header.
func (a *Admitter) Release(q *Admission, flush func()) {
	if a.Timeout == 0 { // a store in memory does not block
		a.refundConcurrent(q)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.refundConcurrent(q)
	}()
	late := time.NewTimer(headerDelay)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		flush()
		<-done
	}
}

// Hold keeps the concurrent permits of q for some time after the request, whose client has left while
// the upstream may be working on it.
func (a *Admitter) Hold(q *Admission, during time.Duration) {
	for i := range q.TakenPermits {
		if t := &q.TakenPermits[i]; t.hasConcurrent() && a.held.add(t.lease, during) {
			t.lease, t.released = nil, true
		}
	}
}

// refundConcurrent refunds the concurrent permits of q.
func (a *Admitter) refundConcurrent(q *Admission) {
	for i := range q.TakenPermits {
		if t := &q.TakenPermits[i]; t.hasConcurrent() {
			q.Settled.pending = appendConcurrent(q.Settled.pending[:0], t.Claims)
			t.lease.end()
			t.released = true
			a.refund(q, t)
		}
	}
}
