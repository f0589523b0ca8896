package redisstore

import (
	"context"
	"net"
	"time"
)

const (
	minBackoff = time.Millisecond
	maxBackoff = 100 * time.Millisecond
)

// A dialer opens the connections of one pipeline, one at a time. After a failure it
// pauses, twice as long each time, until the circuit breaker opens.
type dialer struct {
	pending   chan dialResult // nil if none is being opened
	cancel    context.CancelFunc
	pause     time.Duration
	notBefore time.Time // earliest time of the next attempt
}

// A dialResult is the result of an attempt to open a connection.
type dialResult struct {
	conn *conn
	err  error
}

// connection returns the connection for the writer, opening one if necessary. A node that
// does not reply delays the writer for at most the timeout of a batch; the attempt
// continues, and a later call can use its result.
func (p *pipeline) connection() (*conn, error) {
	if !p.conn.isUnusable() {
		if !p.conn.mustReplace(time.Now()) && p.masters.isCurrent(p.conn.remote) {
			return p.conn, nil
		}
		p.queue.waitDrained()
		p.conn.abort(net.ErrClosed)
	}
	p.conn = nil
	limit := time.NewTimer(p.queue.timeout)
	defer limit.Stop()
	d := &p.dialer
	if d.pending == nil {
		if wait := time.Until(d.notBefore); wait > 0 {
			pause := time.NewTimer(wait)
			defer pause.Stop()
			<-pause.C
		}
		d.start(p)
	}
	select {
	case made := <-d.pending:
		d.pending = nil
		d.cancel()
		if made.err != nil {
			d.pause = min(max(2*d.pause, minBackoff), maxBackoff, p.queue.timeout/4)
			d.notBefore = time.Now().Add(d.pause)
			return nil, made.err
		}
		d.pause = 0
		p.conn = made.conn
		p.masters.set(p.conn.remote)
		p.background.Go(func() { p.read(made.conn) })
		return p.conn, nil
	case <-limit.C:
		return nil, context.DeadlineExceeded
	}
}

// start starts to open a connection.
func (d *dialer) start(p *pipeline) {
	ctx, cancel := context.WithTimeout(context.Background(), p.node.Options().DialTimeout)
	d.pending, d.cancel = make(chan dialResult, 1), cancel
	coming := d.pending
	p.background.Go(func() {
		c, err := connect(ctx, p.node)
		coming <- dialResult{c, err}
	})
}

// stop cancels an attempt, waits for it, and closes its connection.
func (d *dialer) stop() {
	if d.pending == nil {
		return
	}
	d.cancel()
	if made := <-d.pending; made.conn != nil {
		made.conn.close()
	}
	d.pending = nil
}
