package http1

import (
	"context"
	"sync"
	"sync/atomic"
)

// A Call is one request to an upstream and its response. It belongs to one
// goroutine; only Abort is shared.
type Call struct {
	Response Response // the final head; its strings are valid until Release
	// Interim is told of 1xx responses, all but 100 and 101. By default the
	// exchange's client gets them, without hop-by-hop fields.
	Interim func(r *Response)
	// KeepRequestTrailer says which trailer fields of the request are sent on; none if it
	// is nil.
	KeepRequestTrailer func(f Field) bool
	// KeepResponseTrailer says which trailer fields of the response Relay sends on,
	// of those that may stand there; all if it is nil.
	KeepResponseTrailer func(f Field) bool

	client       *Client
	sourceReader sourceReader // what the client's body is read from where there is no exchange
	in           input
	out          Head // the request as it is sent, and body that was at hand
	body         Body // of the response
	upload       upload
	callState

	mu         sync.Mutex // guards what follows
	cancel     context.CancelFunc
	activeConn *clientConn // what Abort interrupts
	// aborted is also looked at without mu, by who has just set a deadline: if it is false
	// then, Abort will set another one.
	aborted atomic.Bool
}

// A callState is how far a call has come. It is apart from what is kept for the next one,
// so that all of it is zeroed in place.
type callState struct {
	x              *Exchange
	requestBody    *Body // the client's body, nil if there is none
	pool           *Pool
	conn           *clientConn
	encoded        bool   // the head in out is whole
	headLen        int    // how long it is
	givenBody      []byte // the client's body if it has been read before
	savedBody      []byte // body that was behind the head before this one
	framing        Framing
	method         string
	upgrade        string
	acceptTrailers bool // TE: trailers is sent

	requestWritten  bool // the request has been sent whole
	bodyConsumed    bool // body was used up that is not in out
	responseStarted bool // some of a response has been read
	switched        bool // 101 has come
	handedOver      bool // the connection is somebody else's
}

// Begin begins the head of the request. The parts of the target together are what
// stands in the request line, host what stands in Host.
//
// It may be called again, to make the same call over another pool.
func (c *Call) Begin(method, host string, target ...string) *Head {
	if c.encoded && len(c.out.buf) > c.headLen {
		c.savedBody = append([]byte(nil), c.out.buf[c.headLen:]...) // it cannot be read again
	}
	c.out.reset(&c.client.buffers)
	c.method, c.encoded = method, false
	c.out.startRequest(method, target...)
	if (c.x == nil || host != c.x.Host()) && !validAuthority(host) { // that of x has been looked at
		c.out.err = ErrOutgoing
	}
	c.out.add("Host", host)
	c.out.hasHost = true
	if c.x != nil && !c.expectsContinue() {
		c.x.Fields.DropKnown(Expect) // it means nothing here, nor to the upstream
	}
	return &c.out
}

// SetUpgrade asks the upstream to change to this protocol. Only then 101 is a
// response, and only to it. The request must have no body.
func (c *Call) SetUpgrade(protocol string) { c.upgrade = protocol }

// SetBody is the body of the request, which whoever has read it to its end gives
// back to be sent on. It must stay as it is until Release.
func (c *Call) SetBody(body []byte) {
	c.givenBody = body
	if body == nil {
		c.givenBody = []byte{}
	}
}

// AcceptTrailers tells the upstream that trailer fields are welcome.
func (c *Call) AcceptTrailers() { c.acceptTrailers = true }

// Body is the body of the response.
func (c *Call) Body() *Body { return &c.body }

// Reused reports whether the connection has carried another request before.
func (c *Call) Reused() bool { return c.conn != nil && c.conn.reused }

// Abort ends what the call waits for. It may be called by any goroutine, until
// Release.
func (c *Call) Abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborted.Store(true)
	if c.cancel != nil {
		c.cancel()
	}
	if c.activeConn != nil {
		_ = c.activeConn.net.SetDeadline(pastTime())
	}
}

// setDialCancel notes how dialling can be aborted, and reports whether it shall go on.
func (c *Call) setDialCancel(cancel context.CancelFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel = cancel
	return !c.aborted.Load()
}

// setActiveConn notes which connection Abort interrupts, and reports whether the call
// shall go on.
func (c *Call) setActiveConn(u *clientConn) bool {
	c.mu.Lock()
	c.activeConn = u
	goesOn := !c.aborted.Load()
	c.mu.Unlock()
	return goesOn
}

// abortedOr is err, or that the call was aborted if that is why.
func (c *Call) abortedOr(err error) error {
	if c.aborted.Load() {
		return ErrAborted
	}
	return err
}

// Release ends the call. Its connection is kept for another one if that is proven
// to be safe, and closed otherwise. It must be called once, by the goroutine that
// made the call, before the handler of its exchange returns.
func (c *Call) Release() {
	if c.x != nil {
		c.x.StopMonitoringClient()
	}
	c.stopUpload()
	c.releaseConn()
	memory := &c.client.buffers
	c.in.release()
	c.sourceReader.in.release()
	c.out.recycle(memory)
	calls := &c.client.callPool
	c.reset()
	calls.Put(c)
}

// reset makes c ready for another call, and keeps its memory for fields.
func (c *Call) reset() {
	c.Response.Reset()
	c.body.reset()
	c.upload.reset()
	if c.requestBody == &c.sourceReader.body {
		c.sourceReader = sourceReader{}
	}
	c.Interim, c.KeepRequestTrailer, c.KeepResponseTrailer = nil, nil, nil
	c.client, c.callState = nil, callState{}
	c.cancel, c.activeConn = nil, nil
	if c.aborted.Load() { // to look costs less than to store
		c.aborted.Store(false)
	}
}

// releaseConn gives up the connection: to the pool or to nobody.
func (c *Call) releaseConn() {
	u := c.conn
	if u == nil || c.handedOver {
		return
	}
	alive := c.setActiveConn(nil)
	c.conn = nil
	if alive && c.reusable() && !u.hasBufferedTLS() {
		u.reused = true
		c.pool.put(u)
		return
	}
	u.close()
}

// reusable reports whether the connection owes nothing and has nothing left.
func (c *Call) reusable() bool {
	return c.requestWritten && c.Response.Status >= 200 && !c.Response.Close && !c.switched && c.body.done() &&
		len(c.in.unread()) == 0 && !c.isConnAuthenticated()
}

// isConnAuthenticated reports whether the connection now belongs to who was authenticated on
// it: some schemes identify a connection rather than a request.
func (c *Call) isConnAuthenticated() bool {
	for _, n := range [...]Name{WWWAuthenticate, ProxyAuthenticate} {
		if c.Response.Fields.present&(1<<n) == 0 {
			continue
		}
		for i := range c.Response.Fields.lines {
			l := &c.Response.Fields.lines[i] // also of those that were stripped
			if l.id == n && authenticatesConn(c.Response.Fields.value(l)) {
				return true
			}
		}
	}
	return false
}

// authenticatesConn reports whether a list of challenges has one of NTLM or
// Negotiate.
func authenticatesConn(list string) bool {
	for list != "" {
		var challenge string
		challenge, list = token(list)
		for i := range len(challenge) {
			if challenge[i] == ' ' {
				challenge = challenge[:i]
				break
			}
		}
		if equalFoldLower(challenge, "ntlm") || equalFoldLower(challenge, "negotiate") {
			return true
		}
	}
	return false
}
