package upstream

import (
	"context"
	"errors"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A course is one request on its way from target to target, whoever sends it.
type course struct {
	pool   *Pool
	trip   *Request
	member *backend // who is busy with it
	began  time.Time
	result Result
}

// A sender sends one request.
type sender interface {
	// send takes it to a target and returns when the header of its answer is there.
	send(m *backend) error
	// repeatable reports whether it may be sent again after it has failed with err.
	repeatable(err error) bool
}

// do sends a request to a target, and to others as long as the one before has not
// seen any of it, or that does no harm, the pool retries and the budget allows it. It
// keeps the last one busy until leave.
func (c *course) do(ctx context.Context, s sender) error {
	var seen error // why a target that may have seen the request gave no answer
	var tried []*backend
	now := c.began
	if c.pool.retries > 0 {
		c.pool.group.deposit()
	}
	for {
		m, err := c.pool.acquire(ctx, now, pick{c.trip.HashBy, tried})
		if err != nil {
			return earlier(seen, err)
		}
		c.member, c.result.Target = m, m.name
		err = s.send(m)
		c.judge(ctx, err)
		if err == nil {
			return nil
		}
		c.leave()
		if !unseen(err) {
			seen = err
		}
		if c.result.Retries >= c.pool.retries || ctx.Err() != nil || !s.repeatable(err) || !c.pool.group.withdraw() {
			return earlier(seen, err)
		}
		c.result.Retries++
		tried, now = append(tried, m), time.Now()
	}
}

// earlier is the error that matters: that of a target which may have seen the
// request, else the last one.
func earlier(seen, last error) error {
	if seen != nil {
		return seen
	}
	return last
}

// unseen reports whether err says that there was no connection, so that the target
// has seen nothing of the request.
func unseen(err error) bool {
	var fault *http1.Fault
	return errors.As(err, new(*dialError)) || errors.As(err, &fault) && fault.Phase < http1.Asking
}

// judge tells the group whether the target could be reached. A client that left
// meanwhile proves nothing.
func (c *course) judge(ctx context.Context, err error) {
	switch {
	case !c.pool.ejects():
	case err == nil:
		c.pool.group.connected(c.member, c.pool.health, true)
	case unseen(err) && ctx.Err() == nil && !errors.Is(err, http1.ErrAborted):
		c.pool.group.connected(c.member, c.pool.health, false)
	}
}

// leave gives the member up for others. It may be called more than once.
func (c *course) leave() {
	if c.member != nil {
		c.pool.group.release(c.member)
		c.member = nil
	}
}
