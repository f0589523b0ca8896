package upstream

import (
	"context"
	"fmt"
	"time"
)

// maxProbeBody is how much of a response to a look is read, in bytes, so that its
// connection can be kept.
const maxProbeBody = 64 << 10

// probeUserAgent is what looks are called.
const probeUserAgent = "weir-health"

// Health says how a pool finds out which targets are available. The zero Health
// never leaves a target alone.
type Health struct {
	// FailureThreshold so many connections in a row that could not be made, a target is
	// asked only when no other can be, for as long as Rest and up to a quarter
	// more; and after so many bad looks in a row not at all. 0 is never.
	FailureThreshold int
	EjectFor         time.Duration
	// SlowStart is how long the share of a target that has come back grows,
	// from a tenth to the whole of it.
	SlowStart time.Duration
	// Path is what a target is asked for with GET every Interval to see how it
	// fares, "" to not look. Each look may take Timeout. A response that Good
	// accepts is a good one, any 2xx if Good is nil.
	Path              string
	Interval, Timeout time.Duration
	Accepts           func(status int) bool
}

// accepts reports whether a look that was answered with this status went well.
func (h Health) accepts(status int) bool {
	if h.Accepts == nil {
		return status/100 == 2
	}
	return h.Accepts(status)
}

// checkHealth looks at m until ctx is done: at once, and then every interval.
func (p *Pool) checkHealth(ctx context.Context, m *backend, look func(context.Context, *backend) error) {
	every := time.NewTicker(p.health.Interval)
	defer every.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, p.health.Timeout)
		err := look(within, m)
		cancel()
		if ctx.Err() != nil {
			return
		}
		p.group.recordCheck(m, p.health, err == nil)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// probe asks m for the path of health. Nil means that it fares well.
func (p *Pool) probe(ctx context.Context, m *backend) error {
	status, err := p.transport().probe(ctx, m, p.health.Path, p.via11)
	if err == nil {
		err = ctx.Err() // a response that came after the time was over is none
	}
	switch {
	case err != nil:
		return fmt.Errorf("look at %s: %w", m.name, err)
	case !p.health.accepts(status):
		return fmt.Errorf("look at %s: status %d", m.name, status)
	}
	return nil
}
