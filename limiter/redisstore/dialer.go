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
// continues, and a later call can use its connection. Its failure is not the result of a
// later call, because the node may have become reachable since it began: that call makes
// an attempt of its own.
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
	for {
		isEarlier := d.pending != nil
		if !isEarlier {
			d.waitPause()
			d.start(p)
		}
		select {
		case made := <-d.pending:
			d.pending = nil
			d.cancel()
			switch {
			case isEarlier && (made.err != nil || made.conn.isUnusable()):
			case made.err != nil:
				d.pause = min(max(2*d.pause, minBackoff), maxBackoff, p.queue.timeout/4)
				d.notBefore = time.Now().Add(d.pause)
				return nil, made.err
			default:
				d.pause = 0
				p.conn = made.conn
				return p.conn, nil
			}
		case <-limit.C:
			return nil, context.DeadlineExceeded
		}
	}
}

// waitPause waits until the next attempt may be made.
func (d *dialer) waitPause() {
	if wait := time.Until(d.notBefore); wait > 0 {
		pause := time.NewTimer(wait)
		defer pause.Stop()
		<-pause.C
	}
}

// start starts to open a connection. It is read from the beginning, so that it is known
// whether it was closed before it is used.
func (d *dialer) start(p *pipeline) {
	ctx, cancel := context.WithTimeout(context.Background(), p.node.Options().DialTimeout)
	d.pending, d.cancel = make(chan dialResult, 1), cancel
	coming := d.pending
	p.background.Go(func() {
		c, err := connect(ctx, p.node)
		if err == nil {
			p.masters.set(c.remote)
		}
		coming <- dialResult{c, err}
		if err == nil {
			p.read(c)
		}
	})
}

// stop cancels an attempt, waits for it, and closes its connection.
func (d *dialer) stop() {
	if d.pending == nil {
		return
	}
	d.cancel()
	if made := <-d.pending; made.conn != nil {
		made.conn.abort(net.ErrClosed) // its reader closes it
	}
	d.pending = nil
}
