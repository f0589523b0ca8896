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
	// Connect bounds making a connection, and TLS its handshake; if TLS is 0,
	// Connect is for both. Response bounds the wait for a head after the request
	// was sent, and how long the upstream may take none of the request. Idle bounds
	// how long it may send nothing in the middle of a body. 0 is no bound.
	Connect, TLS, Response, Idle time.Duration
	// Continue is how long an upstream may take to answer 100-continue before it
	// gets the body nevertheless; 1 s if 0.
	Continue time.Duration
	// MaxIdle is how many connections a pool keeps, 512 if 0; IdleFor how long it
	// keeps one that is not used, 30 s if 0; MaxAge how old one may be to be used
	// again, 0 for any age.
	MaxIdle         int
	IdleFor, MaxAge time.Duration

	setup  sync.Once
	memory memory
	calls  sync.Pool // of *Call
	epoch  time.Time
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
	c.setup.Do(func() {
		c.Limits = c.Limits.withDefaults()
		c.epoch = time.Now()
		for _, d := range []struct {
			field     *time.Duration
			otherwise time.Duration
		}{{&c.Continue, time.Second}, {&c.IdleFor, 30 * time.Second}} {
			if *d.field == 0 {
				*d.field = d.otherwise
			}
		}
		if c.MaxIdle == 0 {
			c.MaxIdle = 512
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
	call, ok := c.calls.Get().(*Call)
	if !ok {
		call = new(Call)
	}
	call.client, call.x = c, x
	call.out.open(&c.memory)
	if x != nil {
		call.source = x.Body()
	}
	return call
}
