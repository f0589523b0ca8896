package proxy

import (
	"cmp"
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
	room := limiter.MemoryOptions{Clock: time.Now}
	return offline(c, room, func(first *generation) error { return first.warm(ctx) })
}

// offline is NewOffline by the clock of room, and in as much room as that says; where it
// says nothing, as the store of c has.
func offline(c *config.Config, room limiter.MemoryOptions, warm func(*generation) error) (*Proxy, error) {
	if c.Store == config.StoreRedis { // which has no such bounds
		room.MaxKeys, room.MaxBytes = cmp.Or(room.MaxKeys, sharedKeys), cmp.Or(room.MaxBytes, sharedBytes)
	}
	p, err := assemble(Options{
		Config:   c,
		Store:    limiter.NewMemory(room),
		Registry: prometheus.NewRegistry(),
		Log:      zerolog.Nop(),
	}, limiter.KeyGuardOptions{Clock: room.Clock}, warm)
	if err != nil {
		return nil, err
	}
	p.admitter.timeout = 0 // this store never waits, whichever the configuration names
	return p, nil
}
