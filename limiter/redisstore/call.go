package redisstore

import (
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A call is one request on its way to Redis, together with others. It owns what
// it points to, because its caller may leave while it is in progress.
type call struct {
	claims   []limiter.Claim
	id       [16]byte
	deadline time.Time     // when its caller gives up
	done     chan struct{} // told once, when decision and err are right

	decision limiter.Decision
	err      error

	// guarded by the queue
	state       state
	older, next *call // among those that are not answered
}

// A state says whose a call is. Only one that is answered without an error is ever
// used again: nobody else can still look at it.
type state uint8

const (
	waiting  state = iota // its caller may take it back
	sent                  // its caller may leave, and never knows
	answered              // the reader or the writer has it, to answer it
	left                  // whatever is the answer, nobody waits for it
)

// newCall makes a call, out of one that has been answered where there is one.
func (s *Store) newCall(claims []limiter.Claim, id [16]byte) *call {
	c, ok := s.calls.Get().(*call)
	if !ok {
		c = &call{done: make(chan struct{}, 1)}
	}
	c.claims = append(c.claims[:0], claims...)
	c.id, c.state, c.deadline = id, waiting, time.Now().Add(s.timeout)
	return c
}

// release is for a call that was answered without an error.
func (s *Store) release(c *call) {
	clear(c.claims)
	s.calls.Put(c)
}

// finish is called once, by whom c was given to answer.
func (c *call) finish(err error) {
	c.err = err
	c.done <- struct{}{}
}
