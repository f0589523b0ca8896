package proxy

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// renewInterval is how often a request says that it still holds its concurrent
// permits. Two of these calls may fail before the lease runs out.
const renewInterval = config.Lease / 3

// A lease keeps the concurrent permits of one request while it is in progress.
// A request that is over before the first renewal costs a timer and nothing
// else. It shares nothing with the exchange, whose next request it may outlive
// by the length of one call.
type lease struct {
	store  limiter.AdminStore
	claims []limiter.Claim
	permit limiter.Permit

	mu    sync.Mutex // guards what follows; never held over I/O
	timer *time.Timer
	ended bool
}

// holds begins to keep those of a taking's claims that are concurrent; nil when
// none is.
func holds(store limiter.AdminStore, claims []limiter.Claim, p limiter.Permit) *lease {
	if !slices.ContainsFunc(claims, concurrent) {
		return nil
	}
	h := &lease{store: store, permit: p}
	for _, c := range claims {
		if concurrent(c) {
			h.claims = append(h.claims, c)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(renewInterval, h.renew)
	return h
}

func concurrent(c limiter.Claim) bool { return c.Limit.Algorithm == limiter.Concurrent }

// renew holds on for another lease. A call that fails is made again next time.
func (h *lease) renew() {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	_ = h.store.Renew(ctx, h.claims, h.permit) // a permit that is lost stays lost; the request goes on
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.timer.Reset(renewInterval)
	}
}

// end ends the keeping; more than once does no harm, and nil keeps nothing.
func (h *lease) end() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.timer.Stop()
}
