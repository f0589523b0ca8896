package redisstore

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

// A conn is a connection to which script calls are written, and from which replies are
// read, without the go-redis client. The client has opened it: it has found the node, and
// done TLS, HELLO, AUTH and SELECT as for its own connections.
type conn struct {
	net.Conn
	client    *redis.Client // created this connection only
	pooled    *redis.Conn   // reserves the connection in client
	remote    string        // remote address
	expiresAt time.Time     // when it is replaced; zero means never
	evaluated []*script     // of changes, whose source was sent; belongs to the writer

	isStale  atomic.Bool           // must be replaced now
	isEnded  atomic.Bool           // its reader has ended
	abortErr atomic.Pointer[error] // set by abort
}

// errNoConn reports that the client has neither opened a connection nor returned an
// error.
var errNoConn = errors.New("the client has not opened a connection")

// connect opens a connection to the node of a client, with the client's options.
func connect(ctx context.Context, node *redis.Client) (*conn, error) {
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
	c := &conn{client: maker, pooled: maker.Conn()}
	err := c.pooled.Ping(ctx).Err()
	if raw := made.Load(); raw != nil {
		c.Conn = newSocketConn(*raw)
	} else if err == nil {
		err = errNoConn
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		c.close()
		return nil, err
	}
	c.remote = c.RemoteAddr().String()
	if life := node.Options().ConnMaxLifetime; life > 0 {
		c.expiresAt = time.Now().Add(life)
	}
	return c, nil
}

// abort closes c with the error err, even while it is being read and written.
func (c *conn) abort(err error) {
	c.abortErr.CompareAndSwap(nil, &err)
	if t, ok := c.Conn.(*tls.Conn); ok {
		_ = t.NetConn().Close() // a TLS close_notify could block
		return
	}
	_ = c.Conn.Close()
}

// readError returns the reason why reading c has ended: the error of abort, otherwise
// err.
func (c *conn) readError(err error) error {
	if why := c.abortErr.Load(); why != nil {
		return *why
	}
	return err
}

// isUnusable reports whether c is nil or has ended.
func (c *conn) isUnusable() bool { return c == nil || c.isEnded.Load() }

// mustReplace reports whether c must be replaced by a new connection.
func (c *conn) mustReplace(now time.Time) bool {
	return c.isStale.Load() || !c.expiresAt.IsZero() && now.After(c.expiresAt)
}

// close closes c, which must not be in use.
func (c *conn) close() {
	if c.Conn != nil {
		c.abort(net.ErrClosed)
	}
	_ = c.pooled.Close()
	_ = c.client.Close()
}
