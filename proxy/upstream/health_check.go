package upstream

import (
	"context"
	"fmt"
	"time"
)

// maxProbeBody is the number of bytes of a response that are read, so that the
// connection can be reused.
const maxProbeBody = 64 << 10

// probeUserAgent is the User-Agent of active health checks.
const probeUserAgent = "weir-health"

// Health configures the health checks of a pool. The zero value disables them.
type Health struct {
	// FailureThreshold is the number of consecutive failures after which a target is no
	// longer used. After that many failures to connect (passive checks) it is ejected:
	// for EjectFor, and up to a quarter more, it is used only if no other target is
	// available. After that many failed active checks it is not used at all. 0 disables
	// both.
	FailureThreshold int
	EjectFor         time.Duration
	// SlowStart is the time in which the share of a recovered target grows from a tenth
	// to its whole weight.
	SlowStart time.Duration
	// Path enables active checks: every Interval a target gets a GET request for Path.
	// The response must arrive within Timeout. Accepts decides which statuses are
	// healthy; if it is nil, all 2xx are.
	Path              string
	Interval, Timeout time.Duration
	Accepts           func(status int) bool
}

// accepts reports whether a response with this status is healthy.
func (h *Health) accepts(status int) bool {
	if h.Accepts == nil {
		return status/100 == 2
	}
	return h.Accepts(status)
}

// checkHealth checks m immediately and then every interval, until ctx is done.
func (p *Pool) checkHealth(ctx context.Context, m *backend, probe func(context.Context, *backend) error) {
	every := time.NewTicker(p.health.Interval)
	defer every.Stop()
	for {
		checkCtx, cancel := context.WithTimeout(ctx, p.health.Timeout)
		err := probe(checkCtx, m)
		cancel()
		if ctx.Err() != nil {
			return
		}
		p.group.recordCheck(m, &p.health, err == nil)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// probe sends one active check to m. It returns nil if m is healthy.
func (p *Pool) probe(ctx context.Context, m *backend) error {
	status, err := p.transport().probe(ctx, m, p.health.Path, p.via11)
	if err == nil {
		err = ctx.Err() // the response came after the timeout
	}
	switch {
	case err != nil:
		return fmt.Errorf("health check of %s: %w", m.name, err)
	case !p.health.accepts(status):
		return fmt.Errorf("health check of %s: status %d", m.name, status)
	}
	return nil
}
