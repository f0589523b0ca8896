package redisstore

import (
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A call is one request to Redis, which is sent in a batch with others. It has copies of
// its arguments, because its caller may return while it is in progress.
type call struct {
	claims   []limiter.Claim // of the request, then of its shadows
	own      int             // how many of claims are the request's
	shadows  []shadowCall
	id       [16]byte
	change   *changeCommand // instead of a request; nil for a request
	notes    bool           // permits of Noted limits are noted by the call that takes them
	deadline time.Time      // when its caller gives up
	done     chan struct{}  // receives once, when decision and err are set

	decision limiter.Decision
	reply    int64 // of a change
	err      error

	// guarded by queue.mu
	state       callState
	older, next *call // links in the list of unanswered calls
}

// A callState is the state of a call, which determines who may use it. Only a call that
// was answered without an error is reused, because nothing else refers to it.
type callState uint8

const (
	callWaiting   callState = iota // not sent; its caller may withdraw it
	callSent                       // sent; if its caller gives up, the outcome is unknown
	callAnswered                   // claimed by the reader or the writer, which finishes it
	callAbandoned                  // its caller has given up
)

// newCall returns a call, reusing an answered one if possible.
func (s *Store) newCall(claims []limiter.Claim, id [16]byte) *call {
	c, ok := s.calls.Get().(*call)
	if !ok {
		c = &call{done: make(chan struct{}, 1)}
	}
	c.claims, c.own, c.shadows = append(c.claims[:0], claims...), len(claims), c.shadows[:0]
	c.id, c.change, c.notes, c.reply, c.state, c.deadline = id, nil, false, 0, callWaiting, time.Now().Add(s.timeout)
	return c
}

// reuseCall releases a call that was answered without an error.
func (s *Store) reuseCall(c *call) {
	clear(c.claims)
	s.calls.Put(c)
}

// request returns the claims of the request itself.
func (c *call) request() []limiter.Claim { return c.claims[:c.own] }

// readInto copies the decision from, which c keeps for reuse, to d.
func (c *call) readInto(d, from *limiter.Decision) {
	outcomes := append(d.Outcomes[:0], from.Outcomes...)
	*d = *from
	d.Outcomes = outcomes
	if d.Allowed {
		d.Permit = limiter.Permit{ID: c.id, At: d.At}
	}
}

// finish sets the result and wakes the caller. It is called once, by the goroutine that
// has claimed c.
func (c *call) finish(err error) {
	c.err = err
	c.done <- struct{}{}
}
