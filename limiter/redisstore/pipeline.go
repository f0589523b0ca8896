package redisstore

import (
	"context"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A pipeline carries calls to one Redis over one connection. A writer sends what waits
// as one batch; a reader tells the callers what Redis answers. Up to Options.MaxInFlight
// batches are in progress at a time; what arrives meanwhile travels together in the
// next. Nothing waits for company, except that the writer lets everything run first that
// can run now, so that batches are not smaller than they need to be.
//
// Nobody waits on a timer of its own: a sweep answers the calls whose time is over, and
// breaks off a connection on which Redis does not answer in time. A connection is made
// when there is something to send. When it is lost and nothing waits, the writer ends.
type pipeline struct {
	store   *Store
	node    *redis.Client
	circuit *circuit // of the client; nil: it has none
	masters *masters // of the client; nil: it does not follow any
	queue   queue
	writers sync.WaitGroup
	others  sync.WaitGroup // readers, and what makes connections or sends again

	writing sync.Mutex // held by the writer: what follows is its own
	conn    *conn
	dialer  dialer
	calls   []*call // to be sent
	out     []byte
}

// newPipeline makes a pipeline to node. It begins nothing.
func newPipeline(s *Store, node *redis.Client, at pipelineKey) *pipeline {
	p := &pipeline{store: s, node: node}
	if b := breakerOf(node); b != nil {
		p.circuit, p.masters = b.own, b.masters
		if at.shared {
			p.circuit = b.shared
		}
	}
	p.queue.begin = func() { p.writers.Go(p.write) }
	p.queue.max, p.queue.limit = s.maxInFlight, s.timeout
	if t := node.Options().ReadTimeout; t > 0 {
		p.queue.limit = min(s.timeout, t)
	}
	p.queue.changed.L = &p.queue.mu
	p.queue.sweep = time.AfterFunc(time.Hour, p.sweep)
	p.queue.sweep.Stop()
	return p
}

// do sends c and waits for its answer, for no longer than ctx and the store's
// timeout allow. What has not been sent by then never is.
func (p *pipeline) do(ctx context.Context, c *call) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := p.queue.join(c); err != nil {
		return err
	}
	gone := ctx.Done()
	if gone == nil {
		<-c.done
		return c.err
	}
	select {
	case <-c.done:
		return c.err
	case <-gone:
		return p.queue.leave(c, context.Cause(ctx))
	}
}

// write is the writer.
func (p *pipeline) write() {
	p.writing.Lock()
	defer p.writing.Unlock()
	for p.queue.ready(p.conn) {
		if err := p.permit(); err != nil {
			p.refuse(err)
			continue
		}
		c, err := p.connected()
		if err != nil {
			p.circuit.record(err)
			p.refuse(err)
			continue
		}
		runtime.Gosched()
		p.send(c)
	}
	if p.conn != nil {
		p.conn.breakOff(net.ErrClosed)
		p.conn = nil
	}
}

// permit asks the breaker of the client.
func (p *pipeline) permit() error {
	if p.circuit == nil || p.circuit.TryAcquirePermit() {
		return nil
	}
	return *p.circuit.why.Load()
}

// refuse answers what would have been sent.
func (p *pipeline) refuse(err error) {
	p.store.remap()
	p.calls = p.queue.take(p.calls[:0])
	p.fail(p.calls, err)
	clear(p.calls)
}

// fail answers those of calls that somebody waits for.
func (p *pipeline) fail(calls []*call, err error) {
	p.queue.claim(calls)
	for _, c := range calls {
		if c.state == answered {
			c.finish(err)
		}
	}
}

// send sends one batch. What does not fit goes with the next, and so does everything if
// c has been lost before.
func (p *pipeline) send(c *conn) {
	p.calls = p.queue.take(p.calls[:0])
	defer clear(p.calls)
	b := p.queue.borrow(p.store)
	fit := 0
	for fit < len(p.calls) && b.add(p.calls[fit]) {
		fit++
	}
	if fit < len(p.calls) {
		p.queue.putBack(p.calls[fit:])
	}
	if fit == 0 { // all have left
		p.circuit.record(context.Canceled)
		p.queue.repay(b)
		return
	}
	p.out = b.appendCommands(p.out[:0])
	b.sent, b.version = time.Now(), p.store.denials.now()
	if !p.queue.send(b, c) {
		p.circuit.record(context.Canceled)
		p.queue.putBack(p.calls[:fit])
		p.queue.repay(b)
		return
	}
	// From here on b is the reader's, which also answers it when it cannot be written.
	if _, err := c.Write(p.out); err != nil {
		c.breakOff(err)
	}
	if cap(p.out) > maxOut {
		p.out = nil
	}
}

// maxOut is how much room for commands is kept.
const maxOut = 256 << 10

// sweep answers what has waited too long, and breaks off a connection on which Redis
// does not answer.
func (p *pipeline) sweep() {
	late, hung := p.queue.expire(time.Now())
	for _, c := range late {
		c.finish(c.err)
	}
	if hung != nil {
		hung.breakOff(context.DeadlineExceeded)
	}
}

// close lets no more calls in and waits for those in progress.
func (p *pipeline) close() {
	p.queue.close()
	p.writers.Wait()
	p.dialer.stop()
	p.others.Wait()
	p.queue.sweep.Stop()
}
