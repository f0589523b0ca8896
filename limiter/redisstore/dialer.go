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

// A dialer makes the connections of one pipeline, one at a time. After one that failed
// it pauses, twice as long each time; the breaker, where there is one, soon says to rest.
type dialer struct {
	coming chan dialled // nil: none is being made
	cancel context.CancelFunc
	pause  time.Duration
	after  time.Time // when the next may be begun
}

type dialled struct {
	conn *conn
	err  error
}

// connected is the connection that the writer is to use: the one that there is, or
// another one. A node that does not answer holds the writer up for no longer than a
// batch may take; the attempt goes on, and whoever comes next may have it.
func (p *pipeline) connected() (*conn, error) {
	if !p.conn.gone() {
		if !p.conn.old(time.Now()) && p.masters.still(p.conn.remote) {
			return p.conn, nil
		}
		p.queue.drained()
		p.conn.breakOff(net.ErrClosed)
	}
	p.conn = nil
	limit := time.NewTimer(p.queue.limit)
	defer limit.Stop()
	d := &p.dialer
	if d.coming == nil {
		if wait := time.Until(d.after); wait > 0 {
			pause := time.NewTimer(wait)
			defer pause.Stop()
			<-pause.C
		}
		d.begin(p)
	}
	select {
	case made := <-d.coming:
		d.coming = nil
		d.cancel()
		if made.err != nil {
			d.pause = min(max(2*d.pause, minBackoff), maxBackoff, p.queue.limit/4)
			d.after = time.Now().Add(d.pause)
			return nil, made.err
		}
		d.pause = 0
		p.conn = made.conn
		p.masters.note(p.conn.remote)
		p.others.Go(func() { p.read(made.conn) })
		return p.conn, nil
	case <-limit.C:
		return nil, context.DeadlineExceeded
	}
}

// begin begins to make a connection.
func (d *dialer) begin(p *pipeline) {
	ctx, cancel := context.WithTimeout(context.Background(), p.node.Options().DialTimeout)
	d.coming, d.cancel = make(chan dialled, 1), cancel
	coming := d.coming
	p.others.Go(func() {
		c, err := connect(ctx, p.node)
		coming <- dialled{c, err}
	})
}

// stop waits for a connection that is being made, and closes it.
func (d *dialer) stop() {
	if d.coming == nil {
		return
	}
	d.cancel()
	if made := <-d.coming; made.conn != nil {
		made.conn.close()
	}
	d.coming = nil
}
