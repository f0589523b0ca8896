// Package wire writes commands to Redis over connections of its own, and reads the replies.
//
// The go-redis client opens each connection: it finds the node, and does TLS, HELLO, AUTH
// and SELECT. Afterwards commands and replies do not go through the client. A Dialer opens
// one connection at a time, with a backoff after failures.
//
// Guarantees:
//   - A Reader accepts valid RESP2 and RESP3 only, allocates nothing for lists of integers
//     once its Reply is large enough, and keeps at most 128 KB of what it has received.
//   - An attempt to connect that fails is never the result of a later call of Dial.
//   - Writing and reading do not block in system calls on Linux, and do not allocate.
//
// Not guaranteed: which reply belongs to which command. The caller counts them.
package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A Conn is a connection to a Redis node, without the go-redis client that has opened it.
// One goroutine may write while another reads.
type Conn struct {
	net.Conn
	client    *redis.Client // created this connection only
	pooled    *redis.Conn   // reserves the connection in client
	remote    string        // remote address
	expiresAt time.Time     // when it is replaced; zero means never

	isStale  atomic.Bool           // must be replaced now
	isEnded  atomic.Bool           // its reader has ended
	abortErr atomic.Pointer[error] // set by Abort
}

// errNoConn reports that the client has neither opened a connection nor returned an
// error.
var errNoConn = errors.New("the client has not opened a connection")

// connect opens a connection to the node of a client, with the client's options.
func connect(ctx context.Context, node *redis.Client) (*Conn, error) {
	o := *node.Options()
	dial := o.Dialer
	var made atomic.Pointer[net.Conn] // may be set after ctx has ended
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err == nil {
			made.Store(&c)
		}
		return c, err
	}
	o.PoolSize, o.MinIdleConns, o.MaxActiveConns, o.PipelinePoolSize = 1, 0, 0, -1
	o.MaxRetries, o.DialerRetries, o.Limiter = -1, 1, nil
	o.ClientSideCacheConfig, o.ClientSideCache = nil, nil
	o.PoolTimeout, o.ReadTimeout, o.WriteTimeout = o.DialTimeout, o.DialTimeout, o.DialTimeout
	o.ContextTimeoutEnabled = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	maker := redis.NewClient(&o)
	c := &Conn{client: maker, pooled: maker.Conn()}
	err := c.pooled.Ping(ctx).Err()
	if raw := made.Load(); raw != nil {
		c.Conn = newSocketConn(unbounded(*raw)) // a Reader has bounds of its own
	} else if err == nil {
		err = errNoConn
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	c.remote = c.RemoteAddr().String()
	if life := node.Options().ConnMaxLifetime; life > 0 {
		c.expiresAt = time.Now().Add(life)
	}
	return c, nil
}

// Abort closes the socket of c with the error err, even while it is being read and
// written.
func (c *Conn) Abort(err error) {
	c.abortErr.CompareAndSwap(nil, &err)
	if t, ok := c.Conn.(*tls.Conn); ok {
		_ = t.NetConn().Close() // a TLS close_notify could block
		return
	}
	_ = c.Conn.Close()
}

// ReadError returns the reason why reading c has ended: the error of Abort, otherwise
// err.
func (c *Conn) ReadError(err error) error {
	if why := c.abortErr.Load(); why != nil {
		return *why
	}
	return err
}

// MarkEnded records that the reader of c has ended.
func (c *Conn) MarkEnded() { c.isEnded.Store(true) }

// IsUnusable reports whether c is nil or its reader has ended.
func (c *Conn) IsUnusable() bool { return c == nil || c.isEnded.Load() }

// MarkStale records that c must be replaced by a new connection.
func (c *Conn) MarkStale() { c.isStale.Store(true) }

// Close closes c, which must not be in use, and the client that has opened it.
func (c *Conn) Close() error {
	if c.Conn != nil {
		c.Abort(net.ErrClosed)
	}
	_ = c.pooled.Close()
	return c.client.Close()
}

// Masters records the master that a client with Sentinel has found last. The client
// closes its connections to other servers, and the user of a Conn must do the same. A nil
// Masters knows of none.
type Masters struct {
	last atomic.Pointer[string]
}

// Set is called for each new connection.
func (m *Masters) Set(addr string) {
	if m != nil {
		m.last.Store(&addr)
	}
}

// IsCurrent reports whether no master other than the one at addr is known.
func (m *Masters) IsCurrent(addr string) bool {
	if m == nil {
		return true
	}
	last := m.last.Load()
	return last == nil || *last == addr
}

// AppendBulk appends text as one argument of a command.
func AppendBulk[T string | []byte](out []byte, text T) []byte {
	out = AppendHeader(out, '$', len(text))
	out = append(out, text...)
	return append(out, "\r\n"...)
}

// AppendHeader appends what a command (*) or an argument ($) begins with: its length.
func AppendHeader(out []byte, kind byte, n int) []byte {
	out = strconv.AppendInt(append(out, kind), int64(n), 10)
	return append(out, "\r\n"...)
}

// AppendCount appends a number as one argument.
func AppendCount(out []byte, n int) []byte {
	var digits [20]byte
	return AppendBulk(out, strconv.AppendInt(digits[:0], int64(n), 10))
}

// AppendCall appends a command that runs a script on keys with args, each a string, a
// []byte or an integer. call is the name of the command and the script, as AppendBulk
// writes them.
func AppendCall(out []byte, call string, keys []string, args []any) []byte {
	out = append(AppendHeader(out, '*', 3+len(keys)+len(args)), call...)
	out = AppendCount(out, len(keys))
	for _, k := range keys {
		out = AppendBulk(out, k)
	}
	for _, a := range args {
		if text, ok := a.([]byte); ok {
			out = AppendBulk(out, text)
		} else {
			out = AppendBulk(out, fmt.Sprint(a))
		}
	}
	return out
}

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
	isExpired := !c.expiresAt.IsZero() && time.Now().After(c.expiresAt)
	return isExpired || c.isStale.Load() || !d.Masters.IsCurrent(c.remote)
}

// Dial opens a connection. A node that does not reply delays the caller for at most
// timeout; the attempt continues, and a later call can use its connection. Its failure is
// not the result of a later call, because the node may have become reachable since it
// began: that call makes an attempt of its own.
func (d *Dialer) Dial(timeout time.Duration) (*Conn, error) {
	limit := time.After(timeout)
	for {
		isEarlier := d.pending != nil
		if !isEarlier {
			time.Sleep(time.Until(d.notBefore))
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
		case <-limit:
			return nil, context.DeadlineExceeded
		}
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
