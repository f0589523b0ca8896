package http1

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/internal/socket"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/pooltest"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A request that comes at the moment at which an idle connection ends is answered, or
// nothing has been done for it: its client may make it again.
func TestServer_RequestAtIdleTimeout(t *testing.T) {
	const within = 8 * time.Millisecond
	sockettest.OverBoth(t, func(t testing.TB) {
		var reached, answers, ends int64
		p := serving(t, func(x *Exchange) { atomic.AddInt64(&reached, 1); says(x) }, func(s *Server) { s.Timeouts.Idle = within })
		random := rand.New(rand.NewPCG(1, 2))
		for range 60 {
			w := p.dial(t, lined("GET /1 HTTP/1.1|Host: a||"))
			w.WantStatus(200)
			answers++
			rest := time.NewTimer(time.Duration(random.Int64N(int64(2 * within))))
			<-rest.C
			if _, err := io.WriteString(w.Conn, lined("POST /2 HTTP/1.1|Host: a|Content-Length: 2||hi")); err == nil {
				res, err := http.ReadResponse(w.Reader, nil)
				if err == nil {
					_, err = io.ReadAll(res.Body)
					answers++
				}
				if err != nil && res != nil {
					t.Errorf("half an answer: %v", err)
				}
				if res == nil {
					ends++
				}
			}
			w.Close()
		}
		if got := atomic.LoadInt64(&reached); got != answers {
			t.Errorf("%d requests reached the handler, and %d were answered", got, answers)
		}
		t.Logf("%d of 60 connections had ended", ends)
	})
}

// A client that is refused can read why, though it goes on sending: what it sends is
// read for a while, so that no reset destroys the answer.
func TestServer_LingersAfterRejection(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		p := serving(t, says, nil)
		for _, said := range []string{
			"POST / HTTP/1.1|Host: a|X y: 1||", "CONNECT a:1 HTTP/1.1|Host: a||", "POST / HTTP/1.1|Host: a|Transfer-Encoding: gzip||",
			"GET / HTTP/1.1|Host: a|X: " + strings.Repeat("x", 40_000) + "||", "POST /late HTTP/1.1|Host: a|Content-Length: 1000000||",
		} {
			w := p.dial(t, lined(said))
			more := strings.Repeat("y", 10_000)
			for range 20 {
				w.Send(more) // it fails if the connection is reset
			}
			sendsNoMore(w.Conn)
			if res, _ := w.ReadResponse("POST"); res.StatusCode < 400 && res.StatusCode != 200 || !res.Close {
				t.Errorf("%.40q: got %d, close %t", said, res.StatusCode, res.Close)
			}
			w.WantClosed()
		}
	})
}

// A loan notes what is in use, so that nothing is used twice at a time.
type loan struct {
	mu    sync.Mutex
	inUse map[any]bool
	twice atomic.Int64
}

func (l *loan) begin(what any) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inUse[what] {
		l.twice.Add(1)
	}
	l.inUse[what] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.inUse, what)
	}
}

// Whatever ends an exchange, clients that leave, an upstream that does, panics and the
// end of the server: no two at a time have the same memory.
func TestServer_ExchangesDoNotShareMemory(t *testing.T) {
	address := sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
		for n := 0; ; n++ {
			if _, err := requestOn(r); err != nil || n%7 == 6 {
				return
			}
			_, _ = io.WriteString(c, okAnswer)
		}
	})
	for round := range 4 {
		l := &loan{inUse: map[any]bool{}}
		busy := make(chan struct{}) // closed when some exchanges have begun
		var begun atomic.Int64
		p := proxyTo(t, address, func(p *proxy) {
			p.server.OnPanic = func(any) {}
			p.server.HalfClose = AbortOnHalfClose
			p.server.Handler = func(x *Exchange) {
				if begun.Add(1) == 40 {
					close(busy)
				}
				defer l.begin(x)()
				defer l.begin(&x.in.headBuf[0])()
				if x.Path() == "/panic" {
					panic("as it was told")
				}
				p.handle(x)
			}
			p.change = func(_ *Exchange, c *Call) {
				end := l.begin(c)
				c.KeepResponseTrailer = func(Field) bool { return true }
				end()
			}
		})
		var clients sync.WaitGroup
		for client := range 12 {
			clients.Go(func() { disturbs(p, rand.New(rand.NewPCG(uint64(client), uint64(round)))) })
		}
		if round%2 == 1 {
			clients.Go(func() {
				<-busy
				_ = p.server.Close()
			})
		}
		clients.Wait()
		if n := l.twice.Load(); n > 0 {
			t.Errorf("%d times something was lent that was in use", n)
		}
	}
}

// disturbs makes requests, and does not care for what becomes of them.
func disturbs(p *proxy, random *rand.Rand) {
	for range 15 {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(soon))
		said := strings.Repeat("GET /"+strconv.Itoa(random.IntN(9))+" HTTP/1.1\r\nHost: a\r\n\r\n", 1+random.IntN(3))
		switch random.IntN(5) {
		case 0:
			said = said[:random.IntN(len(said))]
		case 1:
			said += "GET /panic HTTP/1.1\r\nHost: a\r\n\r\n"
		}
		_, _ = io.WriteString(c, said)
		if random.IntN(3) > 0 {
			sendsNoMore(c)
			_, _ = io.Copy(io.Discard, c)
		}
		c.Close()
	}
}

// Abort ends a call at whatever moment it comes, and none of its connection is used
// for another one that still owes something.
func TestCall_AbortAtAnyMoment(t *testing.T) {
	address := sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			id := req.URL.Path
			if req.Method == "POST" {
				return // and no answer
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: "+strconv.Itoa(len(id))+"\r\n\r\n"+id)
		}
	})
	client := &Client{} // without time limits: an Abort that is lost is waited for in vain
	p := poolTo(t, client, endpointOf(t, address))
	random := rand.New(rand.NewPCG(5, 6))
	aborted := 0
	for i := range 400 {
		c := client.NewCall(nil)
		id := "/" + strconv.Itoa(i)
		c.Begin("GET", "a", id)
		abortEnded := make(chan struct{}, 1)
		go func(spin int) {
			for range spin {
				_ = c.abortedOr(nil)
			}
			c.Abort()
			abortEnded <- struct{}{}
		}(random.IntN(2000))
		done := make(chan error, 1)
		go func() {
			err := p.Send(c)
			if err == nil {
				var body []byte
				if body, err = io.ReadAll(c.Body()); err == nil && string(body) != id {
					t.Errorf("%s got %q", id, body)
				}
			}
			done <- err
		}()
		if err := await.Value(t, done, "end of the call"); err != nil {
			if aborted++; !errors.Is(err, ErrAborted) {
				t.Errorf("got %v", err)
			}
		}
		await.Value(t, abortEnded, "end of Abort")
		c.Release()
	}
	if got, err := ask(t, p, "/after"); got != "/after" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	t.Logf("%d of 400 calls were aborted", aborted)
}

// A call that was aborted before it was made asks nobody.
func TestCall_AbortBeforeSend(t *testing.T) {
	asked := atomic.Bool{}
	address := sockettest.Upstream(t, func(net.Conn, *bufio.Reader) { asked.Store(true) })
	p := poolTo(t, &Client{}, endpointOf(t, address))
	c := p.client.NewCall(nil)
	c.Begin("GET", "a", "/")
	c.Abort()
	if err := p.Send(c); !errors.Is(err, ErrAborted) || asked.Load() {
		t.Errorf("got %v, asked %t", err, asked.Load())
	}
	c.Release()
}

// A late connection lets somebody do something just before a deadline for reading is
// set on it, and a lateWrite connection before one for writing.
type (
	late struct {
		net.Conn
		before func()
	}
	lateWrite late
)

func (l late) SetReadDeadline(at time.Time) error {
	if at.After(time.Now()) {
		l.before()
	}
	return l.Conn.SetReadDeadline(at)
}

func (l lateWrite) SetWriteDeadline(at time.Time) error {
	if at.After(time.Now()) {
		l.before()
	}
	return l.Conn.SetWriteDeadline(at)
}

// A step of a call that waits, and that begins at the moment of Abort, does not undo it:
// neither its deadline nor its context replaces the one that Abort has ended.
func TestCall_AbortAtTheBeginningOfAWait(t *testing.T) {
	reading := func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) }
	silent := func(net.Conn) {}
	for name, step := range map[string]struct {
		upstream func(net.Conn)
		conn     func(nc net.Conn, abort func()) net.Conn
		tls      *tls.Config
	}{
		"handshake": {silent, func(nc net.Conn, abort func()) net.Conn { abort(); return nc }, &tls.Config{ServerName: "a"}},
		"write":     {silent, func(nc net.Conn, abort func()) net.Conn { return lateWrite{nc, abort} }, nil},
		"read":      {reading, func(nc net.Conn, abort func()) net.Conn { return late{nc, abort} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			client := &Client{ResponseTimeout: time.Hour, TLSHandshakeTimeout: time.Hour}
			c := client.NewCall(nil)
			defer c.Release()
			p := client.NewPool(Endpoint{TLS: step.tls, Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go step.upstream(theirs)
				return step.conn(ours, c.Abort), nil
			}})
			c.Begin("GET", "a", "/")
			done := make(chan error, 1)
			go func() { done <- p.Send(c) }()
			if err := await.Value(t, done, "end of the call"); !errors.Is(err, ErrAborted) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A head that was reset differs from a new one by the memory of its fields alone.
func TestReset_ClearsEveryField(t *testing.T) {
	var r Response
	pooltest.Fill(t, &r)
	r.Reset()
	pooltest.Empty(t, &r)
}

// An exchange takes nothing from one client to another: it keeps empty buffers, a released call, and
// what belongs to the handler.
func TestReset_ExchangeOfAnotherClient(t *testing.T) {
	s := new(Server)
	c := &conn{server: s, x: new(Exchange)}
	x := c.x
	pooltest.Fill(t, x, net.Conn(new(net.TCPConn)), bodyFiller(new(Call)), flushWriter(x))
	x.in.headBuf = make([]byte, headBufferSize)
	x.out.buf = make([]byte, headBufferSize)
	x.call = nil
	c.releaseExchange()
	if c.x != nil {
		t.Error("the connection keeps its exchange")
	}
	if reuse.Poisoned != (x.in.headBuf == nil) {
		t.Errorf("a buffer of %d bytes is kept", len(x.in.headBuf))
	}
	x.in.headBuf = nil // it is read into before it is read from
	pooltest.Empty(t, x, "Exchange.State")
}

// A call takes nothing from one request to another: it keeps an empty buffer, and the channel by which
// its next upload ends.
func TestReset_CallOfAnotherClient(t *testing.T) {
	client := new(Client)
	c := new(Call)
	pooltest.Fill(t, c, net.Conn(new(net.TCPConn)), bodyFiller(new(Call)), flushWriter(new(Exchange)))
	c.client, c.x, c.conn, c.upload.running = client, nil, nil, false
	c.out.buf = make([]byte, headBufferSize)
	c.Release()
	pooltest.Empty(t, c, "Call.upload.done")
}

// A lateConn's first Read begins when the wait for a request is ended, and then is
// what read makes of it.
type lateConn struct {
	net.Conn
	ended chan struct{}
	end   sync.Once
	first sync.Once
	read  func(c net.Conn, p []byte) (int, error)
}

func (c *lateConn) NetConn() net.Conn { return c.Conn }

func (c *lateConn) SetReadDeadline(at time.Time) error {
	err := c.Conn.SetReadDeadline(at)
	if at.Equal(pastTime()) {
		c.end.Do(func() { close(c.ended) })
	}
	return err
}

func (c *lateConn) Read(p []byte) (n int, err error) {
	read := net.Conn.Read
	c.first.Do(func() {
		<-c.ended
		read = c.read
	})
	return read(c.Conn, p)
}

// A request that comes at the moment in which its idle connection is ended is
// answered, whether it was read before or is still to be read.
func TestServer_ShutdownServesConcurrentRequest(t *testing.T) {
	for name, read := range map[string]func(c net.Conn, p []byte) (int, error){
		"read": func(c net.Conn, p []byte) (int, error) {
			_ = c.SetReadDeadline(time.Time{})
			return c.Read(p)
		},
		"to be read": func(c net.Conn, _ []byte) (int, error) {
			for under := socket.New(c); under.State() != socket.Readable; {
				runtime.Gosched()
			}
			return 0, os.ErrDeadlineExceeded
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := sockettest.Listen(t)
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			accepted, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c := &lateConn{Conn: accepted, ended: make(chan struct{}), read: read}
			s := &Server{Handler: reads, Timeouts: Timeouts{Header: time.Minute, Body: time.Minute}}
			go s.ServeConn(c)
			done := make(chan error, 1)
			await.Until(t, "connection", func() bool { return len(s.conns.All()) == 1 })
			go func() { done <- s.Shutdown(t.Context()) }()
			<-c.ended
			if _, err := io.WriteString(client, lined("POST /late HTTP/1.1|Host: a|Content-Length: 3||abc")); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Fatalf("the request was lost: %v", err)
			}
			if body, err := io.ReadAll(res.Body); err != nil || string(body) != "/late abc" || !res.Close {
				t.Errorf("got %q, %v, closing %v; want the last answer", body, err, res.Close)
			}
			if err := await.Value(t, done, "end"); err != nil {
				t.Error(err)
			}
		})
	}
}

// Shutdown ends a connection that begins to wait for a request at the same moment: the
// deadline of that wait does not replace the one by which Shutdown ends it.
func TestServer_ShutdownWhileDeadlineIsSet(t *testing.T) {
	client, accepted := net.Pipe()
	defer client.Close()
	s := &Server{Handler: says, Timeouts: Timeouts{Header: time.Hour, Idle: time.Hour}}
	go s.ServeConn(late{accepted, func() { s.closeIdleConns() }})
	await.Until(t, "connection", func() bool { return len(s.conns.All()) == 1 })
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(t.Context()) }()
	if err := await.Value(t, done, "end of Shutdown"); err != nil {
		t.Error(err)
	}
}
