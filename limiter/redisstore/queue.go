package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// maxQueue is the maximum number of calls that wait for one connection.
const maxQueue = 8192

// errBusy reports that too many calls wait for Redis.
var errBusy = errors.New("too many requests waiting for redis")

// A queue has the calls of one pipeline: those that wait, in order, and all that are not
// answered yet. A call is claimed here before it is answered, so that only one of the
// reader, the sweep and its caller, which may give up, answers it.
type queue struct {
	maxInFlight int           // maximum number of batches in progress
	timeout     time.Duration // of one batch
	startWriter func()        // starts the writer goroutine

	mu             sync.Mutex // guards the fields below and the calls' states; never held during I/O
	writerWake     sync.Cond  // the writer waits for it
	hasWriter      bool       // the writer goroutine is running
	closed         bool
	waiting        []*call
	oldest, newest *call      // linked list of unanswered calls
	inFlight       []*batch   // in the order of sending
	conn           *wire.Conn // of the batches in flight
	late           []*batch   // sent on lateConn
	lateConn       *wire.Conn // the last one on which Redis did not reply in time; its replies are still read
	sweepTimer     *time.Timer
	isSweepSet     bool // sweepTimer is set
}

// enqueue appends c and starts the writer if necessary.
func (q *queue) enqueue(c *call) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.enqueueLocked(c)
}

func (q *queue) enqueueLocked(c *call) error {
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
	q.setSweepLocked(time.Until(c.deadline))
	if !q.hasWriter {
		q.hasWriter = true
		q.startWriter()
	}
	q.writerWake.Signal()
	return nil
}

// setSweepLocked sets the timer of the next sweep, unless it is set.
func (q *queue) setSweepLocked(after time.Duration) {
	if !q.isSweepSet {
		q.isSweepSet = true
		q.sweepTimer.Reset(min(after, q.timeout))
	}
}

// unlink removes c from the unanswered calls.
func (q *queue) unlink(c *call, to callState) {
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

// abandon is called if the caller of c gives up because of err, and returns the error of
// the call: that of its result if it is just being answered.
func (q *queue) abandon(c *call, err error) error {
	q.mu.Lock()
	was := c.state
	if was == callWaiting || was == callSent {
		q.unlink(c, callAbandoned)
	}
	q.mu.Unlock()
	switch was {
	case callWaiting:
		return notSent(err)
	case callSent:
		return err
	}
	<-c.done
	return c.err
}

// notSent wraps err for a call that was not sent.
func notSent(err error) error { return fmt.Errorf("%w: not sent", err) }

// claim marks all calls that still have a waiting caller as answered. The caller of claim
// must finish them.
func (q *queue) claim(calls []*call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range calls {
		if c.state == callWaiting || c.state == callSent {
			q.unlink(c, callAnswered)
		}
	}
}

// waitReady waits until there are calls to send and a batch may be sent. It returns false
// if the writer must end: no call waits, and there is no connection or the queue is
// closed.
func (q *queue) waitReady(c *wire.Conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) == 0 || len(q.inFlight) >= q.maxInFlight {
		if len(q.waiting) == 0 && (c.IsUnusable() || q.closed && len(q.inFlight) == 0) {
			q.hasWriter = false
			return false
		}
		q.writerWake.Wait()
	}
	return true
}

// waitDrained waits until no batch is in flight.
func (q *queue) waitDrained() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.inFlight) > 0 {
		q.writerWake.Wait()
	}
}

// dequeue moves calls from the front of the queue to out, as many as fit into one batch.
func (q *queue) dequeue(out []*call) []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, claims := 0, 0
	for _, c := range q.waiting {
		if c.state == callWaiting { // otherwise its caller has given up
			if claims += len(c.claims); claims > maxClaims && len(out) > 0 {
				break
			}
			c.state = callSent
			out = append(out, c)
		}
		n++
	}
	kept := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[kept:])
	q.waiting = q.waiting[:kept]
	return out
}

// requeue puts calls back to the front of the queue.
func (q *queue) requeue(calls []*call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range calls {
		if c.state == callSent {
			c.state = callWaiting
		}
	}
	q.waiting = slices.Insert(q.waiting, 0, calls...)
}

// addInFlight records that b is sent on c. It returns false if the reader of c has ended, or if b is a ping, which is
// sent on a connection with nothing in flight only.
func (q *queue) addInFlight(b *batch, c *wire.Conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.IsUnusable() || b.pong != nil && len(q.inFlight) > 0 {
		return false
	}
	q.conn, q.inFlight = c, append(q.inFlight, b)
	q.setSweepLocked(q.timeout) // its calls may have reached their deadlines before it was sent
	return true
}

// dropPing removes a ping that was sent on c, and has c replaced.
func (q *queue) dropPing(c *wire.Conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.conn == c {
		q.conn, q.inFlight = nil, nil
	}
}

// sentOn returns the batches on c whose replies have not come yet; nil if those on c are not waited for any more.
func (q *queue) sentOn(c *wire.Conn) *[]*batch {
	switch c {
	case q.conn:
		return &q.inFlight
	case q.lateConn:
		return &q.late
	}
	return nil
}

// firstInFlight returns the batch whose replies come next on c, or nil.
func (q *queue) firstInFlight(c *wire.Conn) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	if all := q.sentOn(c); all != nil && len(*all) > 0 {
		return (*all)[0]
	}
	return nil
}

// removeFirst removes the first batch on c. It returns an error if c was replaced and no more replies are waited for.
func (q *queue) removeFirst(c *wire.Conn) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.sentOn(c)
	if all == nil {
		return net.ErrClosed
	}
	*all = slices.Delete(*all, 0, 1)
	q.writerWake.Signal()
	if c != q.conn && len(*all) == 0 {
		return net.ErrClosed
	}
	return nil
}

// removeAll removes all batches in flight on c, because its reader has ended.
func (q *queue) removeAll(c *wire.Conn) []*batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.MarkEnded()
	q.writerWake.Signal()
	switch c {
	case q.conn:
		all := q.inFlight
		q.inFlight, q.conn = nil, nil
		return all
	case q.lateConn: // their calls end at their deadlines
		q.late, q.lateConn = nil, nil
	}
	return nil // nothing is in flight, or another connection has replaced c
}

// expire claims the calls whose deadline has passed, and detaches the connection if a
// batch on it has exceeded its timeout: then it returns that one, and the one detached before. It
// sets the timer for the next deadline.
func (q *queue) expire(now time.Time) (late []*call, hung, earlier *wire.Conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := q.oldest; c != nil && !c.deadline.After(now); c = q.oldest {
		if c.err = context.DeadlineExceeded; c.state == callWaiting {
			c.err = notSent(c.err)
		}
		q.unlink(c, callAbandoned)
		late = append(late, c)
	}
	var next time.Time
	if q.oldest != nil {
		next = q.oldest.deadline
	}
	if len(q.inFlight) > 0 {
		if end := q.inFlight[0].sentAt.Add(q.timeout); !end.After(now) {
			hung, earlier = q.detach()
		} else if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	if q.isSweepSet = !next.IsZero(); q.isSweepSet {
		q.sweepTimer.Reset(min(next.Sub(now), q.timeout))
	}
	return late, hung, earlier
}

// close makes enqueue fail and wakes the writer.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.writerWake.Signal()
}

// detach has the writer use another connection in place of q.conn, on which Redis does not reply in time. It returns
// both it and the one whose late replies were read until now, or nil.
func (q *queue) detach() (hung, earlier *wire.Conn) {
	hung, earlier = q.conn, q.lateConn
	hung.MarkEnded()
	q.late, q.lateConn = q.inFlight, hung
	q.inFlight, q.conn = nil, nil
	q.writerWake.Signal()
	return hung, earlier
}

// abortLate ends the reader of late replies.
func (q *queue) abortLate() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lateConn != nil {
		q.lateConn.Abort(net.ErrClosed)
	}
}

// A lateGrant is what Redis granted to a call whose caller had given up, or what it could not be asked to refund.
type lateGrant struct {
	claims []limiter.Claim
	permit limiter.Permit
	tries  int // how often it was tried to refund it
}

// addLate records that claims of c were granted at the time at, if nobody waits for c any more.
func (b *batch) addLate(c *call, claims []limiter.Claim, at time.Time) {
	if c.state == callAbandoned {
		b.late = append(b.late, lateGrant{claims: claims, permit: limiter.Permit{ID: c.id, At: at}})
	}
}

// refundLate refunds grants in the background. Redis has just replied, but the circuit breaker may still be open. If
// another master has the keys by now, it has not granted them: it may have replaced this one, which hung.
func (p *pipeline) refundLate(grants []lateGrant) {
	p.background.Go(func() {
		p.store.refundAll(slices.DeleteFunc(grants, func(g lateGrant) bool {
			now, err := p.store.pipelineFor(p.store.ctx, g.claims)
			return err != nil || now != p
		}))
	})
}

// maxTries is how often it is tried to refund a grant: with each probe that Redis answers, so for about a minute.
const maxTries = int(lateTimeout / probeInterval)

// refundAll refunds grants.
func (s *Store) refundAll(grants []lateGrant) {
	waits := make([]func() error, len(grants))
	for i, g := range grants {
		waits[i] = s.startRefundOf(g)
	}
	for _, wait := range waits {
		_ = wait()
	}
}

// mustResend reports whether err says that the script did not run, and that the client
// can recover: by sending the script's source, by calling another node, by connecting
// to a master, or by waiting until all keys have moved.
func (b *slotBatch) mustResend(s *Store, err error) bool {
	return hasCode(err, "NOSCRIPT") || s.isCluster && !b.payload.crossSlot && hasCode(err, "MOVED", "ASK", "TRYAGAIN", "READONLY")
}

// resend sends the command of g again through the client, for calls whose callers still
// wait. It sends the source, because the other node may not have the script either.
func (p *pipeline) resend(g *slotBatch, calls []*call) {
	again := &batch{store: p.store, sentAt: time.Now(), version: p.store.refusals.version.Load()}
	ctx, c := context.Background(), g.command(p.store)
	if c.isRedisson {
		ctx = withRedissonCall(ctx)
	}
	calls, c.args = slices.Clone(calls), slices.Clone(c.args)
	for i, a := range c.args {
		if text, ok := a.([]byte); ok {
			c.args[i] = slices.Clone(text)
		}
	}
	to, crossSlot, refunds, first := runner(p.store.client), g.payload.crossSlot, g.refunds, calls[0].claims[0]
	p.background.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, p.store.timeout)
		defer cancel()
		if cluster, ok := to.(*redis.ClusterClient); ok && crossSlot { // p.dialer.Node is closed if its server had left meanwhile
			if node, err := cluster.MasterForKey(ctx, string(p.store.names.append(nil, &first, 0))); err == nil {
				to = node
			}
		}
		val, err := c.script.send(ctx, to, "eval", c.script.text, c.keys, c.args)
		if crossSlot {
			err = p.crossSlotError(err)
		}
		if refunds && errors.Is(err, errSeveralCalls) {
			p.resendApart(calls)
			return
		}
		var answer wire.Reply
		answer.Ints, answer.Err = numbersOf(val, err)
		p.queue.claim(calls)
		again.finishCalls(calls, &answer)
		p.store.refundAll(again.late)
	})
}

// resendApart sends refunds again, each by itself: one script call could not make all of them.
func (p *pipeline) resendApart(calls []*call) {
	for i, c := range calls {
		one := &batch{store: p.store}
		one.addChange(c)
		p.resend(one.groups[0], calls[i:i+1])
	}
}
