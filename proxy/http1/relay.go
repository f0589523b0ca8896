package http1

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/internal/socket"
)

// Relay completes the response that was begun with Begin: it sends the body and the
// trailer fields of the response of c. Data that arrives together is sent together. If
// Relay fails after a part of the response was sent, the exchange is aborted. An error
// of the upstream is a *CallError; any other error concerns the client or the head.
func (e *Exchange) Relay(c *Call) error {
	c.pollUpload()
	if err := e.StartBody(c.body.framing); err != nil {
		return err
	}
	if err := c.relayBody(e); err != nil {
		e.Abort()
		return cmp.Or(e.err, err)
	}
	return e.EndWith(c.responseTrailer())
}

// A Receiver receives a response: a Duplex, or a client that does not use HTTP/1.1.
type Receiver interface {
	// Begin receives the head. length is the length of the body, or -1 if it is
	// unknown.
	Begin(status int, f *Fields, length int64) error
	flushWriter // Write receives a part of the body. It may buffer it until Flush or End.
	// End receives the trailer fields.
	End(trailer *Fields) error
}

// RelayTo sends the response of c to a Receiver. For an Exchange whose body is read by
// the call itself, Relay costs less. An error of the upstream is a *CallError; any
// other error is one of the Receiver.
func (c *Call) RelayTo(to Receiver) error {
	c.pollUpload()
	if err := to.Begin(c.Response.Status, &c.Response.Fields, c.body.framing.Length); err != nil {
		return err
	}
	if err := c.relayBody(to); err != nil {
		return err
	}
	return to.End(c.responseTrailer())
}

// relayBody sends the response body of c. If the upstream fails, the client gets what was
// received before.
func (c *Call) relayBody(to flushWriter) error {
	c.body.flusher = to
	for {
		data, err := c.body.Next()
		switch {
		case err == io.EOF: //nolint:errorlint // Next returns io.EOF unwrapped
			return nil
		case c.flushErr != nil:
			return c.flushErr
		case err != nil:
			_ = to.Flush()
			return c.responseBodyError(err)
		}
		if c.OnBody != nil {
			c.OnBody(data)
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
	}
}

// responseTrailer returns the trailer fields of the response that are forwarded.
func (c *Call) responseTrailer() *Fields {
	if keep := c.KeepResponseTrailer; keep != nil {
		c.body.trailer.DropFunc(func(f Field) bool { return !keep(f) })
	}
	return &c.body.trailer
}

// responseBodyError returns the error for a response body that was cut short. If the
// request body has failed, that is the cause: the upstream cannot respond to a body
// that it did not get.
func (c *Call) responseBodyError(err error) *CallError {
	f := c.newError(err)
	if f.Phase == SendingRequest {
		f.Phase = ReadingResponseBody
	}
	return f
}

// UpgradedConn returns the upstream connection after a 101 response. unread holds bytes
// that the upstream has sent after that response. The caller owns both from then on. No
// deadlines are set on the connection.
func (c *Call) UpgradedConn() (nc net.Conn, unread []byte, ok bool) {
	if !c.switched || c.handedOver {
		return nil, nil, false
	}
	c.handedOver = true
	c.activeConn.Store(nil)
	_ = c.conn.net.SetDeadline(time.Time{})
	return c.conn.net, append([]byte(nil), c.in.unread()...), true
}

// A writeGuard panics if two goroutines write to a connection at the same time. The locks
// of package net do not prevent that: readFirst and reuseAttempt write while they hold
// the one for reading. Without the build tag poison it does nothing.
type writeGuard struct{ writing atomic.Bool }

func (g *writeGuard) begin() {
	if reuse.Poisoned && g.writing.Swap(true) {
		panic("http1: two goroutines write to a connection")
	}
}

func (g *writeGuard) end() {
	if reuse.Poisoned {
		g.writing.Store(false)
	}
}

// write writes p to the client.
func (c *conn) write(p []byte) error {
	c.writeGuard.begin()
	defer c.writeGuard.end()
	if c.socket.IsPlain {
		return c.socket.Write(p)
	}
	_, err := c.net.Write(p)
	return err
}

const (
	headBufferSize = 8 << 10 // enough for most heads and small messages
	// BodyBufferSize is the size in bytes of the buffer that an exchange holds while a body is
	// read: one of unknown length, or one that is read by Next and does not fit behind its head.
	BodyBufferSize = 32 << 10
)

// A bufferPool holds buffers for reuse. A buffer that was put back may be reused for
// another message at once, so nothing may refer to it any more. With the build tag
// poison, buffers are overwritten instead and never reused.
type bufferPool struct {
	heads, bodies sync.Pool
}

func (p *bufferPool) getHead() []byte { return reused[[headBufferSize]byte](&p.heads)[:] }

func (p *bufferPool) getBody() []byte { return reused[[BodyBufferSize]byte](&p.bodies)[:] }

// reused returns what p holds, which was emptied before it was put there, or a new one.
func reused[T any](p *sync.Pool) *T {
	if kept, ok := p.Get().(*T); ok {
		return kept
	}
	return new(T)
}

// put returns a buffer of either size to the pool. Buffers of other sizes are dropped.
func (p *bufferPool) put(b []byte) {
	switch b = reuse.Memory(b); cap(b) { // 0 if it was overwritten
	case headBufferSize:
		p.heads.Put((*[headBufferSize]byte)(b[:headBufferSize]))
	case BodyBufferSize:
		p.bodies.Put((*[BodyBufferSize]byte)(b[:BodyBufferSize]))
	}
}

// A TunnelEnd is one side of a tunnel. Unread holds bytes that were received from Conn already.
type TunnelEnd struct {
	Conn   net.Conn
	Unread []byte
}

const (
	// goingAwayWait is how long the ends of a tunnel may take to close it after it was told to end.
	goingAwayWait = time.Second
	// goingAway is a WebSocket frame of a server that closes with status 1001 (RFC 6455 section 7.4.1).
	goingAway = "\x88\x02\x03\xe9"
)

// Tunnels copy bytes between clients that have switched to WebSocket and their upstreams. The zero value
// is ready for use.
type Tunnels struct{ open ConnSet[*tunnel] }

type tunnel struct {
	client, target TunnelEnd
	leaving        atomic.Bool // it was told to end
}

// Run copies bytes in both directions until both have ended or one has failed. Then it closes both
// connections.
func (t *Tunnels) Run(client, target TunnelEnd) {
	one := &tunnel{client: client, target: target}
	t.open.Add(one)
	defer t.open.Remove(one)
	one.run()
}

// Drain waits until no tunnel is left. When ctx is done, it closes those that are left with the WebSocket status
// 1001, going away.
func (t *Tunnels) Drain(ctx context.Context) {
	if t.wait(ctx, (*tunnel).leave) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goingAwayWait)
	defer cancel()
	if !t.wait(ctx, (*tunnel).close) {
		t.wait(context.Background(), nil)
	}
}

// wait waits until no tunnel is left. When ctx is done, it calls end for each that is left, and returns false.
func (t *Tunnels) wait(ctx context.Context, end func(*tunnel)) bool {
	if WaitUntil(ctx, 5*time.Millisecond, func() bool { return len(t.open.All()) == 0 }) == nil {
		return true
	}
	for _, one := range t.open.All() {
		end(one)
	}
	return false
}

func (t *tunnel) run() {
	defer t.close()
	var both sync.WaitGroup
	both.Go(func() { t.copy(t.client.Conn, t.target, []byte(goingAway)) })
	t.copy(t.target.Conn, t.client, maskedGoingAway())
	both.Wait()
	if t.leaving.Load() { // a close with unread bytes would destroy what was sent
		both.Go(func() { discard(t.client.Conn) })
		discard(t.target.Conn)
		both.Wait()
	}
}

// discard reads what c still receives, for some time.
func discard(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(goingAwayWait / 2))
	_, _ = io.Copy(io.Discard, c)
}

// leave makes both directions end with a frame that closes the WebSocket. An end that is in the middle of
// a frame of its own sees the connection end.
func (t *tunnel) leave() {
	t.leaving.Store(true)
	_ = t.client.Conn.SetReadDeadline(pastTime())
	_ = t.target.Conn.SetReadDeadline(pastTime())
}

func (t *tunnel) close() {
	_ = t.client.Conn.Close()
	_ = t.target.Conn.Close()
}

// copy copies bytes in one direction. When that direction ends, the other one stays open.
func (t *tunnel) copy(to net.Conn, from TunnelEnd, last []byte) {
	_, err := to.Write(from.Unread)
	if err == nil {
		_, err = io.Copy(to, from.Conn) // uses splice(2) between two sockets on Linux
	}
	if t.leaving.Load() && timedOut(err) {
		_, err = to.Write(last)
	}
	if err != nil || socket.CloseWrite(to) != nil {
		_ = to.Close()
		_ = from.Conn.Close()
	}
}

// maskedGoingAway is goingAway of a client, which masks its frames (RFC 6455 section 5.3).
func maskedGoingAway() []byte {
	b := append([]byte(goingAway), 0, 0, 0, 0)
	status := [2]byte{b[2], b[3]}
	_, _ = rand.Read(b[2:6]) // never fails
	b[1] |= 0x80
	return append(b[:6], status[0]^b[2], status[1]^b[3])
}

// A Duplex is an Exchange whose request body is read by one goroutine while another
// goroutine writes the response. At most one goroutine may read and one may write.
type Duplex struct {
	x     *Exchange
	whole atomic.Bool // the request body was read to its end

	mu sync.Mutex // held during writes: of the response, or of 100 Continue by the reader
}

// Open initializes d for x. The body of x may have been read before.
func (d *Duplex) Open(x *Exchange) {
	d.x = x
	d.whole.Store(x.Body() == nil || x.Body().done())
}

// Exchange returns the exchange of d.
func (d *Duplex) Exchange() *Exchange { return d.x }

// Read reads the request body. The first read sends 100 Continue if the client waits
// for that. Read must not be called after the handler has returned.
func (d *Duplex) Read(p []byte) (int, error) {
	d.mu.Lock()
	err := d.x.Continue()
	d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := d.x.Body().Read(p)
	if errors.Is(err, io.EOF) {
		d.whole.Store(true)
	}
	return n, err
}

// Stop makes a pending read return and prevents further reads, unless the body was read
// to its end.
func (d *Duplex) Stop() {
	if !d.whole.Load() {
		d.x.CancelBodyRead()
	}
}

// Trailer returns the trailer fields of the request. They are available after the body
// was read to its end.
func (d *Duplex) Trailer() *Fields { return d.x.Body().Trailer() }

// Informational sends a 1xx response with these fields, unless the client uses
// HTTP/1.0.
func (d *Duplex) Informational(status int, f *Fields) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.x.Interim(status).AddFields(f)
	_ = d.x.SendInterim() // if it fails, the final response fails, too
}

// Begin completes the head of the final response. length is the length of the body, or
// -1 if it is unknown. Nothing is sent yet. If the request body has not been read to
// its end, the connection is closed after the response.
func (d *Duplex) Begin(status int, f *Fields, length int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.x.uploading = !d.whole.Load()
	d.x.Begin(status).AddFields(f)
	framing := Framing{UntilClose, -1}
	if length >= 0 {
		framing = Framing{FixedLength, length}
	}
	return d.x.StartBody(framing)
}

// Write is Exchange.Write.
func (d *Duplex) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.x.Write(p)
}

// Flush is Exchange.Flush.
func (d *Duplex) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.x.Flush()
}

// End is Exchange.EndWith.
func (d *Duplex) End(trailer *Fields) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.x.EndWith(trailer)
}

// SwitchProtocols sends 101 with these fields and hands over the connection. See
// Exchange.SwitchProtocols.
func (d *Duplex) SwitchProtocols(protocol string, f *Fields) (c net.Conn, unread []byte, err error) {
	d.x.Begin(101).AddFields(f)
	return d.x.SwitchProtocols(protocol)
}

// Committed is Exchange.Committed.
func (d *Duplex) Committed() bool { return d.x.Committed() }

// SwitchProtocols sends a 101 response with the fields that were added since Begin, and
// hands over the connection. unread holds bytes that the client has sent after its
// request. The caller owns both from then on, also after the handler has returned. No
// deadlines are set on the connection.
func (e *Exchange) SwitchProtocols(protocol string) (c net.Conn, unread []byte, err error) {
	if e.progress != responseHead || e.status != 101 || e.Body() != nil || e.Minor == 0 {
		return nil, nil, ErrResponseState
	}
	e.out.add("Connection", "Upgrade")
	e.out.add("Upgrade", protocol)
	if e.out.err != nil {
		return nil, nil, e.out.err
	}
	e.out.end()
	e.progress = responseBody
	if err := e.Flush(); err != nil {
		return nil, nil, err
	}
	e.progress, e.hijacked = responseDone, true
	e.conn.clearReadDeadline()
	if e.conn.writeDeadline.at != 0 {
		_ = e.conn.net.SetWriteDeadline(time.Time{})
	}
	e.conn.server.conns.Remove(e.conn)
	return e.conn.net, append([]byte(nil), e.in.unread()...), nil
}
