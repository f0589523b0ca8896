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

// A conn is a connection that script calls are written to and replies are read from
// without the client in between. The client has made it: found the node, spoken TLS,
// said hello, given the password and chosen the database, as for its own.
type conn struct {
	net.Conn
	maker  *redis.Client // of this one connection
	inUse  *redis.Conn   // keeps it from being used by maker
	remote string        // its address
	until  time.Time     // when another one is to take its place; zero: never

	stale atomic.Bool           // another one is to take its place now
	ended atomic.Bool           // nobody reads it any more
	why   atomic.Pointer[error] // it was broken off
}

// errNoConn reports that a client made no connection and no error.
var errNoConn = errors.New("the client has made no connection")

// connect makes a connection to the node of a client, with its options.
func connect(ctx context.Context, node *redis.Client) (*conn, error) {
	o := *node.Options()
	dial := o.Dialer
	var made atomic.Pointer[net.Conn] // possibly after ctx is over
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
	c := &conn{maker: maker, inUse: maker.Conn()}
	err := c.inUse.Ping(ctx).Err()
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
		c.until = time.Now().Add(life)
	}
	return c, nil
}

// breakOff ends c because of why, also while it is being read and written.
func (c *conn) breakOff(why error) {
	c.why.CompareAndSwap(nil, &why)
	if t, ok := c.Conn.(*tls.Conn); ok {
		_ = t.NetConn().Close() // saying goodbye could take long
		return
	}
	_ = c.Conn.Close()
}

// end is what reading c has ended with: err, unless it was broken off before.
func (c *conn) end(err error) error {
	if why := c.why.Load(); why != nil {
		return *why
	}
	return err
}

// gone reports whether c, which may be nil, can be used no more.
func (c *conn) gone() bool { return c == nil || c.ended.Load() }

// old reports whether another connection is to take the place of c.
func (c *conn) old(now time.Time) bool {
	return c.stale.Load() || !c.until.IsZero() && now.After(c.until)
}

// close lets go of c, which nobody uses any more.
func (c *conn) close() {
	if c.Conn != nil {
		c.breakOff(net.ErrClosed)
	}
	_ = c.inUse.Close()
	_ = c.maker.Close()
}
