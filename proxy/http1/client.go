package http1

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// A Client sends requests to upstreams. Its fields are set before the first call
// and not changed then. Pools of one Client share its memory.
type Client struct {
	Limits Limits
	// ConnectTimeout bounds making a connection, and TLS its handshake; if TLS is 0,
	// Connect is for both. Response bounds the wait for a head after the request
	// was sent, and how long the upstream may take none of the request. Idle bounds
	// how long it may send nothing in the middle of a body. 0 is no bound.
	ConnectTimeout, TLSHandshakeTimeout, ResponseTimeout, BodyTimeout time.Duration
	// ExpectContinueTimeout is how long an upstream may take to answer 100-continue before it
	// gets the body nevertheless; 1 s if 0.
	ExpectContinueTimeout time.Duration
	// MaxIdleConns is how many connections a pool keeps, 512 if 0; IdleConnTimeout how long it
	// keeps one that is not used, 30 s if 0; MaxConnAge how old one may be to be used
	// again, 0 for any age.
	MaxIdleConns                int
	IdleConnTimeout, MaxConnAge time.Duration

	setupOnce sync.Once
	buffers   bufferPool
	callPool  sync.Pool // of *Call
	epoch     time.Time
}

// An Endpoint is where the connections of a pool lead to.
type Endpoint struct {
	Network, Address string // as for net.Dial
	// TLS is how to speak TLS there, nil for not at all. Its ServerName must be set,
	// and its NextProtos, if there are any, must be "http/1.1" alone.
	TLS *tls.Config
	// Dial makes the connection, by default a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (c *Client) prepare() {
	c.setupOnce.Do(func() {
		c.Limits = c.Limits.withDefaults()
		c.epoch = time.Now()
		for _, d := range []struct {
			field     *time.Duration
			otherwise time.Duration
		}{{&c.ExpectContinueTimeout, time.Second}, {&c.IdleConnTimeout, 30 * time.Second}} {
			if *d.field == 0 {
				*d.field = d.otherwise
			}
		}
		if c.MaxIdleConns == 0 {
			c.MaxIdleConns = 512
		}
	})
}

// now is the time since the client began.
func (c *Client) now() time.Duration { return time.Since(c.epoch) }

// NewPool makes a pool of connections to e. It dials nothing yet.
func (c *Client) NewPool(e Endpoint) *Pool {
	c.prepare()
	if e.Dial == nil {
		e.Dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	return &Pool{client: c, endpoint: e}
}

// NewCall begins a request on behalf of x, which is nil for one of our own. Its
// Release must be called.
func (c *Client) NewCall(x *Exchange) *Call {
	c.prepare()
	call, ok := c.callPool.Get().(*Call)
	if !ok {
		call = new(Call)
	}
	call.client, call.x = c, x
	call.out.reset(&c.buffers)
	if x != nil {
		call.requestBody = x.Body()
	}
	return call
}
