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

// A lease renews the concurrent permits of one request while it is in progress. A request that ends
// before the first renewal costs only a timer. A lease shares no memory with the exchange, because
// a pending renewal may outlive it.
type lease struct {
	store  limiter.AdminStore
	claims []limiter.Claim
	permit limiter.Permit

	mu    sync.Mutex // guards what follows; never held over I/O
	timer *time.Timer
	ended bool
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

// renew extends the lease. A failed call is repeated after the next interval.
func (h *lease) renew() {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	_ = h.store.Renew(ctx, h.claims, h.permit) // a permit that has expired stays lost; the request continues
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.timer.Reset(renewInterval)
	}
}

// end stops the renewals. It may be called more than once, and on nil.
func (h *lease) end() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.timer.Stop()
}
