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
	c.claims, c.own, c.id, c.deadline = append(c.claims, claims...), len(claims), id, time.Now().Add(s.timeout)
	return c
}

// reuseCall releases a call that was answered without an error.
func (s *Store) reuseCall(c *call) {
	c.reset()
	s.calls.Put(c)
}

// reset makes c the call of nobody. It names all that is kept for the next one, which may be of another client.
func (c *call) reset() {
	clear(c.claims)
	clear(c.shadows)
	*c = call{
		claims: c.claims[:0], shadows: c.shadows[:0], done: c.done,
		decision: limiter.Decision{Outcomes: c.decision.Outcomes[:0]},
	}
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
