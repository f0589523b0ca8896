package redisstore

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A call is one request on its way to Redis, together with others. It owns what
// it points to, because its caller may leave while it is under way.
type call struct {
	claims []limiter.Claim
	id     [16]byte
	state  atomic.Int32
	done   chan struct{} // closed once decision and err are right
	sent   time.Time     // before it was sent

	decision limiter.Decision
	err      error
}

// The states of a call: a caller that leaves takes back what still waits.
const (
	waiting int32 = iota
	sent
	left
)

func newCall(claims []limiter.Claim, id [16]byte) *call {
	return &call{claims: slices.Clone(claims), id: id, done: make(chan struct{})}
}

// send reports whether the caller is still there, and that c now is under way.
func (c *call) send() bool { return c.state.CompareAndSwap(waiting, sent) }

// leave reports whether c never goes under way.
func (c *call) leave() bool { return c.state.CompareAndSwap(waiting, left) }

func (c *call) finish(err error) {
	c.err = err
	close(c.done)
}
