package redisstore

import (
	"context"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A pipeline sends calls to one Redis over one connection. A writer sends the waiting
// calls as one batch, and a reader distributes the replies to the callers. Up to
// Options.MaxInFlight batches are in flight at a time; calls that arrive meanwhile are
// sent together in the next one. A call is not delayed to wait for others, except that
// the writer yields to the goroutines that can run, so that batches are not smaller than
// necessary.
//
// Callers have no timers. A sweep ends the calls whose deadline has passed, and closes a
// connection on which Redis does not reply in time. A connection is opened when there is
// something to send. If it is lost and no call waits, the writer ends.
type pipeline struct {
	store      *Store
	node       *redis.Client
	circuit    *circuit // of the client; nil if it has none
	masters    *masters // of the client; nil without Sentinel
	queue      queue
	writers    sync.WaitGroup
	background sync.WaitGroup // readers, dialers and calls that are sent again

	writeMu sync.Mutex // held by the writer; guards the fields below
	conn    *conn
	dialer  dialer
	calls   []*call // being sent
	buf     []byte
}

// newPipeline returns a pipeline to node. It starts no goroutine.
func newPipeline(s *Store, node *redis.Client, at pipelineKey) *pipeline {
	p := &pipeline{store: s, node: node}
	if b := breakerOf(node); b != nil {
		p.circuit, p.masters = b.own, b.masters
		if at.shared {
			p.circuit = b.shared
		}
	}
	p.queue.startWriter = func() { p.writers.Go(p.write) }
	p.queue.maxInFlight, p.queue.timeout = s.maxInFlight, s.timeout
	if t := node.Options().ReadTimeout; t > 0 {
		p.queue.timeout = min(s.timeout, t)
	}
	p.queue.writerWake.L = &p.queue.mu
	p.queue.sweepTimer = time.AfterFunc(time.Hour, p.sweep)
	p.queue.sweepTimer.Stop()
	return p
}

// do sends c and waits for the result, no longer than ctx and the store's timeout allow.
// A call that has not been sent by then is never sent.
func (p *pipeline) do(ctx context.Context, c *call) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := p.queue.enqueue(c); err != nil {
		return err
	}
	done := ctx.Done()
	if done == nil {
		<-c.done
		return c.err
	}
	select {
	case <-c.done:
		return c.err
	case <-done:
		return p.queue.abandon(c, context.Cause(ctx))
	}
}

// write is the writer goroutine.
func (p *pipeline) write() {
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	for p.queue.waitReady(p.conn) {
		if err := p.acquirePermit(); err != nil {
			p.failWaiting(err)
			continue
		}
		c, err := p.connection()
		if err != nil {
			p.circuit.record(err)
			p.failWaiting(err)
			continue
		}
		runtime.Gosched()
		p.send(c)
	}
	if p.conn != nil {
		p.conn.abort(net.ErrClosed)
		p.conn = nil
	}
}

// acquirePermit asks the circuit breaker of the client whether a batch may be sent.
func (p *pipeline) acquirePermit() error {
	if p.circuit == nil || p.circuit.TryAcquirePermit() {
		return nil
	}
	return *p.circuit.lastErr.Load()
}

// failWaiting finishes the waiting calls with err.
func (p *pipeline) failWaiting(err error) {
	p.store.reloadCluster()
	p.calls = p.queue.dequeue(p.calls[:0])
	p.fail(p.calls, err)
	clear(p.calls)
}

// fail finishes those of calls that still have a waiting caller.
func (p *pipeline) fail(calls []*call, err error) {
	p.queue.claim(calls)
	for _, c := range calls {
		if c.state == callAnswered {
			c.finish(err)
		}
	}
}

// send sends one batch. Calls that do not fit are sent with the next one, and so are all
// calls if c was lost.
func (p *pipeline) send(c *conn) {
	p.calls = p.queue.dequeue(p.calls[:0])
	defer clear(p.calls)
	b := p.queue.getBatch(p.store)
	fit := 0
	for fit < len(p.calls) && b.add(p.calls[fit]) {
		fit++
	}
	if fit < len(p.calls) {
		p.queue.requeue(p.calls[fit:])
	}
	if fit == 0 { // all callers have given up
		p.circuit.record(context.Canceled)
		p.queue.putBatch(b)
		return
	}
	p.buf = b.appendCommands(p.buf[:0], c)
	b.sentAt, b.version = time.Now(), p.store.denials.currentVersion()
	if !p.queue.addInFlight(b, c) {
		p.circuit.record(context.Canceled)
		p.queue.requeue(p.calls[:fit])
		p.queue.putBatch(b)
		return
	}
	// From here on the reader owns b. It also answers b if the write fails.
	if _, err := c.Write(p.buf); err != nil {
		c.abort(err)
	}
	if cap(p.buf) > maxBufferSize {
		p.buf = nil
	}
}

// maxBufferSize is the largest command buffer that is kept for reuse.
const maxBufferSize = 256 << 10

// sweep finishes the calls whose deadline has passed, and closes a connection on which
// Redis does not reply.
func (p *pipeline) sweep() {
	late, hung := p.queue.expire(time.Now())
	for _, c := range late {
		c.finish(c.err)
	}
	if hung != nil {
		hung.abort(context.DeadlineExceeded)
	}
}

// close rejects further calls and waits for those in progress.
func (p *pipeline) close() {
	p.queue.close()
	p.writers.Wait()
	p.dialer.stop()
	p.background.Wait()
	p.queue.sweepTimer.Stop()
}
