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

// The capacity of a memory store that replaces a shared store.
const (
	sharedKeys  = 16_000_000
	sharedBytes = 4 << 30
)

// NewOffline returns a Proxy for queries, which serves no requests: it dials no targets, logs
// nothing, and counts in its own memory store whatever the configuration says. The caller must
// close it. Keys of tokens are fetched as configured; without them, requests that need a token are
// refused.
func NewOffline(ctx context.Context, c *config.Config) (*Proxy, error) {
	memory := limiter.MemoryOptions{Clock: time.Now}
	return offline(c, memory, func(first *generation) error { return first.warm(ctx) })
}

// offline is NewOffline with the clock and the capacity of room. Where room has no capacity, that
// of the configured store applies.
func offline(c *config.Config, memory limiter.MemoryOptions, warm func(*generation) error) (*Proxy, error) {
	if c.Store == config.StoreRedis { // a shared store has no configured capacity
		memory.MaxKeys, memory.MaxBytes = cmp.Or(memory.MaxKeys, sharedKeys), cmp.Or(memory.MaxBytes, sharedBytes)
	}
	p, err := assemble(Options{
		Config:   c,
		Store:    limiter.NewMemory(memory),
		Registry: prometheus.NewRegistry(),
		Log:      zerolog.Nop(),
	}, limiter.KeyGuardOptions{Clock: memory.Clock}, warm)
	if err != nil {
		return nil, err
	}
	p.admitter.timeout = 0 // a memory store does not block
	return p, nil
}
