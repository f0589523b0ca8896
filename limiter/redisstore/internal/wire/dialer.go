package wire

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	minBackoff = time.Millisecond
	maxBackoff = 100 * time.Millisecond
)

// A Dialer opens connections to one node, one at a time. After a failure it pauses, twice
// as long each time. Its methods must not be called at the same time.
type Dialer struct {
	Node    *redis.Client
	Masters *Masters    // of the client; nil without Sentinel
	Read    func(*Conn) // reads a new connection until it ends, and closes it

	pending   chan dialResult // nil if none is being opened
	cancel    context.CancelFunc
	pause     time.Duration
	notBefore time.Time      // earliest time of the next attempt
	running   sync.WaitGroup // the attempt, and the readers
}

// A dialResult is the result of an attempt to open a connection.
type dialResult struct {
	conn *Conn
	err  error
}

// MustReplace reports whether c must be replaced by a new connection.
func (d *Dialer) MustReplace(c *Conn) bool {
	return c.mustReplace(time.Now()) || !d.Masters.IsCurrent(c.remote)
}

// Dial opens a connection. A node that does not reply delays the caller for at most
// timeout; the attempt continues, and a later call can use its connection. Its failure is
// not the result of a later call, because the node may have become reachable since it
// began: that call makes an attempt of its own.
func (d *Dialer) Dial(timeout time.Duration) (*Conn, error) {
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	for {
		isEarlier := d.pending != nil
		if !isEarlier {
			d.waitPause()
			d.start()
		}
		select {
		case made := <-d.pending:
			d.pending = nil
			d.cancel()
			switch {
			case isEarlier && (made.err != nil || made.conn.IsUnusable()):
			case made.err != nil:
				d.pause = min(max(2*d.pause, minBackoff), maxBackoff, timeout/4)
				d.notBefore = time.Now().Add(d.pause)
				return nil, made.err
			default:
				d.pause = 0
				return made.conn, nil
			}
		case <-limit.C:
			return nil, context.DeadlineExceeded
		}
	}
}

// waitPause waits until the next attempt may be made.
func (d *Dialer) waitPause() {
	if wait := time.Until(d.notBefore); wait > 0 {
		pause := time.NewTimer(wait)
		defer pause.Stop()
		<-pause.C
	}
}

// start starts to open a connection. It is read from the beginning, so that it is known
// whether it was closed before it is used.
func (d *Dialer) start() {
	ctx, cancel := context.WithTimeout(context.Background(), d.Node.Options().DialTimeout)
	d.pending, d.cancel = make(chan dialResult, 1), cancel
	coming := d.pending
	d.running.Go(func() {
		c, err := connect(ctx, d.Node)
		if err == nil {
			d.Masters.Set(c.remote)
		}
		coming <- dialResult{c, err}
		if err == nil {
			d.Read(c)
		}
	})
}

// Stop cancels an attempt, and waits for it and for all readers. The caller has aborted the
// connections that it got.
func (d *Dialer) Stop() {
	if d.pending != nil {
		d.cancel()
		if made := <-d.pending; made.conn != nil {
			made.conn.Abort(net.ErrClosed) // its reader closes it
		}
		d.pending = nil
	}
	d.running.Wait()
}
