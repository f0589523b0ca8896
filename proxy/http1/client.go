package http1

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/stripe"
)

// A Client sends requests to upstreams. Its fields must be set before the first call
// and must not be changed afterwards. All pools of a Client share its buffers.
type Client struct {
	Limits Limits
	// ConnectTimeout bounds establishing a connection and TLSHandshakeTimeout the TLS
	// handshake; if the latter is 0, ConnectTimeout bounds both together.
	// ResponseTimeout bounds the wait for the head of the response after the request
	// was sent, and each write of the request. An interim response restarts it, until ten
	// times the timeout have passed. BodyTimeout bounds each wait for more of
	// a response body. 0 means no timeout.
	ConnectTimeout, TLSHandshakeTimeout, ResponseTimeout, BodyTimeout time.Duration
	// ExpectContinueTimeout is how long to wait for the response to Expect:
	// 100-continue before the body is sent anyway. The default is 1 s.
	ExpectContinueTimeout time.Duration
	// MaxIdleConns is the maximum number of idle connections per pool, by default 512.
	// IdleConnTimeout is how long a connection may be idle before it is closed, by
	// default 30 s. MaxConnAge is the maximum age of a connection that is used again; 0
	// means no maximum.
	MaxIdleConns                int
	IdleConnTimeout, MaxConnAge time.Duration

	setupOnce sync.Once
	buffers   bufferPool
	callPool  sync.Pool // of *Call
	epoch     time.Time
	stripes   *stripe.Numbers // of idle connections
}

// An Endpoint describes where a Pool connects to.
type Endpoint struct {
	Network, Address string // as for net.Dial
	// TLS is the TLS configuration, or nil for plain TCP. ServerName must be set.
	// NextProtos must be empty or contain only "http/1.1".
	TLS *tls.Config
	// Dial establishes the connection. The default is a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (c *Client) prepare() {
	c.setupOnce.Do(func() {
		c.Limits = c.Limits.forResponses()
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
		if c.stripes == nil {
			c.stripes = stripesOf(runtime.GOMAXPROCS(0), c.MaxIdleConns)
		}
	})
}

// manyProcessors is the number of processors from which each has its own idle connections. With fewer
// they seldom wait for each other, and one list reuses the most recently used of all connections.
const manyProcessors = 4

// stripesOf returns the stripes of so many processors for this maximum number of connections.
func stripesOf(processors, connections int) *stripe.Numbers {
	if processors < manyProcessors {
		processors = 1
	}
	return stripe.NewFor(min(processors, connections))
}

// now returns the time since the client was initialized.
func (c *Client) now() time.Duration { return time.Since(c.epoch) }

// NewPool returns a pool of connections to e. It does not connect yet.
func (c *Client) NewPool(e Endpoint) *Pool {
	c.prepare()
	if e.Dial == nil {
		e.Dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	return &Pool{client: c, endpoint: e, lists: make([]idleList, c.stripes.Count())}
}

// NewCall returns a Call on behalf of x, or one without an exchange if x is nil. The
// caller must call its Release method.
func (c *Client) NewCall(x *Exchange) *Call {
	c.prepare()
	var call *Call
	if x != nil && x.call != nil {
		call, x.call = x.call, nil
	} else if call, _ = c.callPool.Get().(*Call); call == nil {
		call = new(Call)
	}
	call.client, call.x = c, x
	if x != nil {
		call.requestBody = x.Body()
		if x.stage == responseNone {
			call.out.takeBuffer(&x.out)
		}
	}
	return call
}
