package upstream

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/stripe"
)

// maxProbeBody is the number of bytes of a response that are read, so that the
// connection can be reused.
const maxProbeBody = 64 << 10

// probeUserAgent is the User-Agent of active health checks.
const probeUserAgent = "weir-health"

// checkHealth checks m immediately and then every interval, until ctx is done.
func (p *Pool) checkHealth(ctx context.Context, m *backend, probe func(context.Context, *backend) error) {
	every := time.NewTicker(p.config.Health.Interval)
	defer every.Stop()
	for {
		checkCtx, cancel := context.WithTimeout(ctx, p.config.Health.Timeout)
		err := probe(checkCtx, m)
		cancel()
		if ctx.Err() != nil {
			return
		}
		p.group.recordCheck(m, &p.config.Health, err == nil)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// probe sends one active check to m. It returns nil if m is healthy.
func (p *Pool) probe(ctx context.Context, m *backend) error {
	status, err := p.transport().probe(ctx, m, p.config.Health.Path, p.via11)
	if err == nil {
		err = ctx.Err() // the response came after the timeout
	}
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
	ejectedUntil   time.Time // end of the ejection
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

// ejected reports whether t is selected only if no other target is available: it is
// ejected, or its ejection has ended and one request is already probing it.
func (t *targetHealth) ejected(now time.Time, h *config.Health) bool {
	return now.Before(t.ejectedUntil) ||
		h.After > 0 && t.failedConnects >= h.After && t.inFlight.Sum() > 0
}

// slowStartFactor returns the share of its weight that t has. It grows linearly after a
// recovery.
func (t *targetHealth) slowStartFactor(now time.Time, h *config.Health) float64 {
	if t.recoveredAt.IsZero() || h.SlowStart == 0 {
		return 1
	}
	return min(max(float64(now.Sub(t.recoveredAt))/float64(h.SlowStart), slowStartShare), 1)
}
