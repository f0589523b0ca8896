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
	"net"
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

// mustReplace reports whether c must be replaced by a new connection.
func (c *Conn) mustReplace(now time.Time) bool {
	return c.isStale.Load() || !c.expiresAt.IsZero() && now.After(c.expiresAt)
}

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
