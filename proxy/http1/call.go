package http1

import (
	"cmp"
	"context"
	"crypto/tls"
	"math"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/proxy/stripe"
)

// A Call is one request to an upstream and its response. Only Abort is safe for
// concurrent use.
type Call struct {
	Response Response // the head of the final response; its strings are valid until Release
	// Interim is called for each 1xx response except 100 and 101. If it is nil, the
	// client of the exchange gets the response without its hop-by-hop fields.
	Interim func(r *Response)
	// KeepRequestTrailer selects the trailer fields of the request that are forwarded.
	// If it is nil, none are.
	KeepRequestTrailer func(f Field) bool
	// KeepResponseTrailer selects the trailer fields of the response that Relay
	// forwards, among those that are allowed in a trailer section. If it is nil, all
	// are.
	KeepResponseTrailer func(f Field) bool
	// OnBody is called with each part of the body of the response before Relay sends it, unless it is nil.
	OnBody func(part []byte)

	client       *Client
	sourceReader sourceReader // the request body of a call without an exchange
	in           input
	out          Head // the head of the request, and body that is sent in the same write
	body         Body // response body
	upload       upload

	x              *Exchange
	requestBody    *Body // nil if there is none
	pool           *Pool
	conn           *clientConn
	encoded        bool   // out holds the complete head
	headLen        int    // length of the head in out
	givenBody      []byte // the request body, if the caller has read it (SetBody)
	savedBody      []byte // body that followed the head of an earlier attempt
	framing        Framing
	method         string
	upgrade        string
	acceptTrailers bool // send TE: trailers

	lastRead time.Duration // when the head of the final response was read, and all of the response unless waited is set
	waited   bool          // more of the body was read after the head

	requestWritten  bool // the whole request was sent
	bodyConsumed    bool // bytes of the request body were read that are not in out
	responseStarted bool // a part of a response was read
	interim         interimState
	switched        bool  // the upstream has responded with 101
	handedOver      bool  // the connection belongs to another owner
	flushErr        error // why the client of Relay or RelayTo does not accept the response

	// aborted is read after activeConn, cancelDial or a deadline has been set: if it is false then,
	// a later Abort finds that connection or function, or overwrites that deadline.
	aborted    atomic.Bool
	activeConn atomic.Pointer[clientConn]         // the connection that Abort interrupts; Abort sets it to nil
	cancelDial atomic.Pointer[context.CancelFunc] // what Abort calls while a connection is dialed; otherwise nil
}

// Begin begins the head of the request and returns it, so that fields can be added. The
// request target is the concatenation of the parts of target; host is the value of
// Host.
//
// It may be called again after Send has failed, to send the same request to another
// pool.
func (c *Call) Begin(method, host string, target ...string) *Head {
	if c.encoded && len(c.out.buf) > c.headLen {
		c.savedBody = append([]byte(nil), c.out.buf[c.headLen:]...) // these bytes of the body cannot be read again
	}
	c.out.reset(&c.client.buffers)
	c.method, c.encoded = method, false
	c.out.startRequest(method, target...)
	if (c.x == nil || host != c.x.Host()) && !ValidAuthority(host) { // the host of x was validated by the parser
		c.out.err = ErrOutgoing
	}
	c.out.add("Host", host)
	c.out.hasHost = true
	if c.x != nil && !c.expectsContinue() {
		c.x.Fields.DropKnown(Expect) // the expectation was met here: it must not be forwarded
	}
	return &c.out
}

// SetUpgrade asks the upstream to switch to this protocol (RFC 9110 section 7.8). A 101
// response is accepted only for this protocol. The request must have no body.
func (c *Call) SetUpgrade(protocol string) { c.upgrade = protocol }

// SetBody sets the request body, after the caller has read the body of the exchange to
// its end. The bytes must not change before Release.
func (c *Call) SetBody(body []byte) {
	c.givenBody = body
	if body == nil {
		c.givenBody = []byte{}
	}
}

// AcceptTrailers sends TE: trailers, which tells the upstream that trailer fields are
// accepted.
func (c *Call) AcceptTrailers() { c.acceptTrailers = true }

// Body returns the response body.
func (c *Call) Body() *Body { return &c.body }

// ResponseAfter returns the time from began until the head of the response was read.
func (c *Call) ResponseAfter(began time.Time) time.Duration {
	return c.lastRead - began.Sub(c.client.epoch)
}

// Abort makes the call fail with ErrAborted. Any goroutine may call it; it must have
// returned before Release is called.
func (c *Call) Abort() {
	c.aborted.Store(true)
	if u := c.activeConn.Swap(nil); u != nil {
		_ = u.net.SetDeadline(pastTime())
	}
	if cancel := c.cancelDial.Load(); cancel != nil {
		(*cancel)()
	}
}

// abortedOr returns ErrAborted if the call has been aborted, and otherwise err.
func (c *Call) abortedOr(err error) error {
	if c.aborted.Load() {
		return ErrAborted
	}
	return err
}

// Release ends the call. Its connection is put into the pool if it is certain that it
// can be reused, and closed otherwise. Release must be called exactly once, by the
// goroutine that owns the call, before the handler of the exchange returns.
func (c *Call) Release() {
	if c.x != nil {
		c.x.StopMonitoringClient(c)
	}
	c.stopUpload()
	c.releaseConn()
	c.in.release()
	c.sourceReader.in.release()
	x, client := c.x, c.client
	if x != nil {
		x.out.takeBuffer(&c.out)
	}
	c.out.recycle(&client.buffers)
	c.reset()
	if x != nil && x.call == nil {
		x.call = c
		return
	}
	client.callPool.Put(c)
}

// reset makes c no call. It names all that is kept for the next one, which may be of another
// client; its buffers were recycled before. A composite literal with what is kept would be made on
// the stack, which grows for it, and copied.
func (c *Call) reset() {
	fields, out, trailer, done := c.Response.Fields, c.out, c.body.trailer, c.upload.done
	*c = Call{}
	c.Response.Fields, c.out, c.body.trailer, c.upload.done = fields, out, trailer, done
	c.Response.Fields.Reset()
	c.body.trailer.Reset()
}

// releaseConn puts the connection into the pool or closes it.
func (c *Call) releaseConn() {
	u := c.conn
	if u == nil || c.handedOver {
		return
	}
	c.conn = nil
	interruptible := c.activeConn.Swap(nil) == u // otherwise Abort is interrupting it
	if interruptible && !c.aborted.Load() && c.reusable() && !u.hasBufferedTLS() {
		if c.waited {
			c.lastRead = c.client.now()
		}
		u.reused = true
		if c.Response.Fields.present&(1<<KeepAlive) != 0 {
			u.maxIdle = c.Response.keepAliveTimeout()
		}
		c.pool.put(u, c.lastRead)
		return
	}
	u.close()
}

// reusable reports whether the connection can serve another request: the request and
// the response are complete, nothing is left to read, and the connection is not
// authenticated.
func (c *Call) reusable() bool {
	return c.requestWritten && c.Response.Status >= 200 && !c.Response.Close && !c.switched && c.body.done() &&
		len(c.in.unread()) == 0 && !c.isConnAuthenticated()
}

// isConnAuthenticated reports whether the upstream has asked for an authentication
// scheme that authenticates the connection instead of each request. Such a connection
// must not be used for other clients.
func (c *Call) isConnAuthenticated() bool {
	const challenges NameSet = 1<<WWWAuthenticate | 1<<ProxyAuthenticate
	f := &c.Response.Fields
	if f.present&challenges == 0 {
		return false
	}
	for i := range f.lines {
		l := &f.lines[i] // includes dropped lines
		if challenges&(1<<l.id) != 0 && authenticatesConn(f.value(l)) {
			return true
		}
	}
	return false
}

// authenticatesConn reports whether a list of challenges contains NTLM or Negotiate.
func authenticatesConn(list string) bool {
	for challenge := range Elements(list) {
		scheme, _, _ := strings.Cut(challenge, " ")
		if equalFoldLower(scheme, "ntlm") || equalFoldLower(scheme, "negotiate") {
			return true
		}
	}
	return false
}

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
	// default 30 s.
	MaxIdleConns    int
	IdleConnTimeout time.Duration

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
		c.ConnectTimeout = cmp.Or(c.ConnectTimeout, math.MaxInt64)
		c.ExpectContinueTimeout = cmp.Or(c.ExpectContinueTimeout, time.Second)
		c.IdleConnTimeout, c.MaxIdleConns = cmp.Or(c.IdleConnTimeout, 30*time.Second), cmp.Or(c.MaxIdleConns, 512)
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
	} else {
		call = reused[Call](&c.callPool)
	}
	call.client, call.x = c, x
	if x != nil {
		call.requestBody = x.Body()
		if x.progress == responseNone {
			call.out.takeBuffer(&x.out)
		}
	}
	return call
}
