package upstream

import (
	"context"
	"fmt"
	"time"
)

// maxProbe is how much of a response to a look is read, in bytes, so that its
// connection can be kept.
const maxProbe = 64 << 10

// probeAgent is what looks are called.
const probeAgent = "weir-health"

// Health says how a pool finds out which targets are available. The zero Health
// never leaves a target alone.
type Health struct {
	// After so many connections in a row that could not be made, a target is
	// asked only when no other can be, for as long as Rest and up to a quarter
	// more; and after so many bad looks in a row not at all. 0 is never.
	After    int
	EjectFor time.Duration
	// SlowStart is how long the share of a target that has come back grows,
	// from a tenth to the whole of it.
	SlowStart time.Duration
	// Path is what a target is asked for with GET every Interval to see how it
	// fares, "" to not look. Each look may take Timeout. A response that Good
	// accepts is a good one, any 2xx if Good is nil.
	Path              string
	Interval, Timeout time.Duration
	Good              func(status int) bool
}

// good reports whether a look that was answered with this status went well.
func (h Health) good(status int) bool {
	if h.Good == nil {
		return status/100 == 2
	}
	return h.Good(status)
}

// probe looks at m until ctx is done: at once, and then every interval.
func (p *Pool) probe(ctx context.Context, m *backend, look func(context.Context, *backend) error) {
	every := time.NewTicker(p.health.Interval)
	defer every.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, p.health.Timeout)
		err := look(within, m)
		cancel()
		if ctx.Err() != nil {
			return
		}
		p.group.checked(m, p.health, err == nil)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// get asks m for the path of health. Nil means that it fares well.
func (p *Pool) get(ctx context.Context, m *backend) error {
	status, err := p.carrier().get(ctx, m, p.health.Path, p.via11)
	if err == nil {
		err = ctx.Err() // a response that came after the time was over is none
	}
	switch {
	case err != nil:
		return fmt.Errorf("look at %s: %w", m.name, err)
	case !p.health.good(status):
		return fmt.Errorf("look at %s: status %d", m.name, status)
	}
	return nil
}
