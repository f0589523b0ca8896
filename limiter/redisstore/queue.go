package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxQueue calls may wait for one connection.
const maxQueue = 8192

// errBusy reports that too many requests wait for Redis already.
var errBusy = errors.New("too many requests wait for redis")

// A queue has the calls of one pipeline: those that wait, in their order, and all that
// nobody has answered yet. Who answers a call claims it here first, so that only one
// does: the reader, the sweep, or its caller, who leaves.
type queue struct {
	max   int           // batches may be in progress
	limit time.Duration // for which one may be
	begin func()        // starts the writer

	mu             sync.Mutex // guards what follows, and the calls' states; never held over I/O
	changed        sync.Cond  // what the writer waits for
	idle           bool       // it does
	running        bool       // there is a writer
	closed         bool
	waiting        []*call
	oldest, newest *call    // not answered
	inFlight       []*batch // in the order in which they were sent
	spare          []*batch
	conn           *conn // that they are in progress on
	sweep          *time.Timer
	swept          bool // the timer of the sweep is set
}

// join puts c at the end, and sees to it that there is a writer.
func (q *queue) join(c *call) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.joinLocked(c)
}

func (q *queue) joinLocked(c *call) error {
	switch {
	case q.closed:
		return redis.ErrClosed
	case len(q.waiting) >= maxQueue:
		return errBusy
	}
	q.waiting = append(q.waiting, c)
	c.older, c.next = q.newest, nil
	if q.newest == nil {
		q.oldest = c
	} else {
		q.newest.next = c
	}
	q.newest = c
	if !q.swept {
		q.swept = true
		q.sweep.Reset(min(time.Until(c.deadline), q.limit))
	}
	if !q.running {
		q.running = true
		q.begin()
	}
	q.wake()
	return nil
}

// wake has the writer look again.
func (q *queue) wake() {
	if q.idle {
		q.idle = false
		q.changed.Signal()
	}
}

// unlink takes c out of those that are not answered.
func (q *queue) unlink(c *call, to state) {
	if c.older == nil {
		q.oldest = c.next
	} else {
		c.older.next = c.next
	}
	if c.next == nil {
		q.newest = c.older
	} else {
		c.next.older = c.older
	}
	c.older, c.next, c.state = nil, nil, to
}

// leave is for a caller that gives up, with the error that it has then: that of the
// answer, if that is on its way to it.
func (q *queue) leave(c *call, why error) error {
	q.mu.Lock()
	was := c.state
	if was == waiting || was == sent {
		q.unlink(c, left)
	}
	q.mu.Unlock()
	switch was {
	case waiting:
		return notSent(why)
	case sent:
		return why
	}
	<-c.done
	return c.err
}

func notSent(why error) error { return fmt.Errorf("%w: not sent", why) }

// claim makes all calls that somebody still waits for the caller's to answer.
func (q *queue) claim(calls []*call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range calls {
		if c.state == waiting || c.state == sent {
			q.unlink(c, answered)
		}
	}
}

// ready waits until there is something to send and room for it. It reports false when
// the writer is to end: nothing waits, and there is no connection or never will be a
// call again.
func (q *queue) ready(c *conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) == 0 || len(q.inFlight) >= q.max {
		if len(q.waiting) == 0 && (c.gone() || q.closed && len(q.inFlight) == 0) {
			q.running = false
			return false
		}
		q.idle = true
		q.changed.Wait()
	}
	return true
}

// drained waits until nothing is in progress.
func (q *queue) drained() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.inFlight) > 0 {
		q.idle = true
		q.changed.Wait()
	}
}

// take moves calls from the front to out, as many as may travel together.
func (q *queue) take(out []*call) []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, claims := 0, 0
	for _, c := range q.waiting {
		if c.state == waiting { // otherwise its caller has left
			if claims += len(c.claims); claims > maxClaims && len(out) > 0 {
				break
			}
			c.state = sent
			out = append(out, c)
		}
		n++
	}
	kept := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[kept:])
	q.waiting = q.waiting[:kept]
	return out
}

// putBack has calls wait again, before all others.
func (q *queue) putBack(calls []*call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range calls {
		if c.state == sent {
			c.state = waiting
		}
	}
	q.waiting = slices.Insert(q.waiting, 0, calls...)
}

// send has b in progress on c. It reports false if nobody reads c any more.
func (q *queue) send(b *batch, c *conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.ended.Load() {
		return false
	}
	q.conn = c
	q.inFlight = append(q.inFlight, b)
	return true
}

// first is the batch whose replies come next; nil: none.
func (q *queue) first() *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.inFlight) == 0 {
		return nil
	}
	return q.inFlight[0]
}

// landed takes the first batch off: there is room for another.
func (q *queue) landed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := copy(q.inFlight, q.inFlight[1:])
	q.inFlight[n] = nil
	q.inFlight = q.inFlight[:n]
	q.wake()
}

// lost takes all batches off, as nobody reads c any more.
func (q *queue) lost(c *conn) []*batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.ended.Store(true)
	all := q.inFlight
	q.inFlight, q.conn = nil, nil
	q.wake()
	return all
}

// borrow is an empty batch, which repay takes back.
func (q *queue) borrow(s *Store) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.spare); n > 0 {
		b := q.spare[n-1]
		q.spare = q.spare[:n-1]
		return b
	}
	return newBatch(s)
}

func (q *queue) repay(b *batch) {
	b.reset()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spare = append(q.spare, b)
}

// expire claims the calls whose time is over, and returns a connection on which a
// batch has been in progress for too long. It sets the timer for the next.
func (q *queue) expire(now time.Time) (late []*call, hung *conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := q.oldest; c != nil && !c.deadline.After(now); c = q.oldest {
		why := context.DeadlineExceeded
		if c.state == waiting {
			why = notSent(why)
		}
		c.err = why
		q.unlink(c, left)
		late = append(late, c)
	}
	var next time.Time
	if q.oldest != nil {
		next = q.oldest.deadline
	}
	if len(q.inFlight) > 0 {
		if end := q.inFlight[0].sent.Add(q.limit); !end.After(now) {
			hung = q.conn
		} else if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	if q.swept = !next.IsZero(); q.swept {
		q.sweep.Reset(min(next.Sub(now), q.limit))
	}
	return late, hung
}

// close lets nobody in any more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake()
}
