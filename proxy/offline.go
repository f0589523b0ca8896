package proxy

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// The room that a memory store has which stands for a shared one.
const (
	sharedKeys  = 16_000_000
	sharedBytes = 4 << 30
)

// NewOffline makes a Proxy that is asked about requests and serves none: it dials no
// target, logs nothing, and counts in a memory store of its own whatever the
// configuration says. Close ends it. Keys of tokens are fetched from where the
// configuration says; without them, what a token decides is refused.
func NewOffline(ctx context.Context, c *config.Config) (*Proxy, error) {
	return offline(c, time.Now, func(first *generation) error { return first.warm(ctx) })
}

// offline is NewOffline by a clock.
func offline(c *config.Config, clock func() time.Time, warm func(*generation) error) (*Proxy, error) {
	room := limiter.MemoryOptions{Clock: clock}
	if c.Store == config.StoreRedis { // which has no such bounds
		room.MaxKeys, room.MaxBytes = sharedKeys, sharedBytes
	}
	p, err := assemble(Options{
		Config:   c,
		Store:    limiter.NewMemory(room),
		Registry: prometheus.NewRegistry(),
		Log:      zerolog.Nop(),
	}, limiter.KeyGuardOptions{Clock: clock}, warm)
	if err != nil {
		return nil, err
	}
	p.admitter.timeout = 0 // this store never waits, whichever the configuration names
	return p, nil
}
