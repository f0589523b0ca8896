package http1

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/proxy/internal/socket"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// Kept connections that have ended are passed over, however many they are, and a
// request that must not be sent twice finds a new one.
func TestReuseAttempt_SkipsStaleConnections(t *testing.T) {
	sockettest.OverBoth(t, skipsStaleConnections)
}

func skipsStaleConnections(t testing.TB) {
	const kept = 3
	conns, seen := make(chan net.Conn, 10), make(chan string, 10)
	address := sockettest.Upstream(t, func(nc net.Conn, r *bufio.Reader) {
		conns <- nc
		eachRequest(r, func(said string) {
			seen <- said
			_, _ = io.WriteString(nc, okAnswer)
		})
	})
	p := poolTo(t, &Client{}, endpointOf(t, address))
	calls, _ := held(t, p, kept)
	for _, c := range calls {
		await.Value(t, seen, "request")
		c.Release()
		await.Value(t, conns, "connection").Close()
	}
	if p.Idle() != kept {
		t.Fatalf("%d are idle, want %d", p.Idle(), kept)
	}
	await.Until(t, "all have ended", func() bool {
		for _, u := range p.kept() {
			if u.peerState() == socket.Open {
				return false
			}
		}
		return true
	})
	c := p.client.NewCall(nil)
	defer c.Release()
	c.Begin("POST", "a", "/")
	if err := p.Send(c); err != nil || c.Response.Status != 200 {
		t.Fatalf("status %d, %v", c.Response.Status, err)
	}
	if said := await.Value(t, seen, "request"); !strings.HasPrefix(said, "POST") || len(seen) > 0 {
		t.Errorf("the upstream has seen %q, and %d more", said, len(seen))
	}
	if p.Idle() != 0 {
		t.Errorf("%d are idle", p.Idle())
	}
}

// A request that the socket does not take at once is sent whole all the same.
func TestReuseAttempt_PartialWrite(t *testing.T) { sockettest.OverBoth(t, partialWrite) }

func partialWrite(t testing.TB) {
	began, length := make(chan struct{}), make(chan int, 1)
	address := sockettest.Upstream(t, func(nc net.Conn, r *bufio.Reader) {
		_, _ = requestOn(r)
		_, _ = io.WriteString(nc, okAnswer)
		<-began
		n := 0
		for {
			line, err := r.ReadString('\n')
			if n += len(line); err != nil || line == "\r\n" {
				break
			}
		}
		length <- n
		_, _ = io.WriteString(nc, okAnswer)
	})
	p := poolTo(t, &Client{}, endpointOf(t, address))
	if got, err := ask(t, p, "/"); got != "ok" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	c := p.client.NewCall(nil)
	defer c.Release()
	h := c.Begin("GET", "a", "/")
	for range 400 {
		h.Add("X", strings.Repeat("x", 32<<10))
	}
	wait := time.AfterFunc(50*time.Millisecond, func() { close(began) })
	defer wait.Stop()
	if err := p.Send(c); err != nil || !c.conn.reused {
		t.Fatalf("%v, reused: %v", err, c.conn.reused)
	}
	if got, want := await.Value(t, length, "request"), len(c.out.buf); got != want {
		t.Errorf("%d bytes have come, want %d", got, want)
	}
}

// What goes wrong is told as the net package tells of it.
func TestReuseAttempt_SocketErrors(t *testing.T) { sockettest.OverBoth(t, socketErrors) }

func socketErrors(t testing.TB) {
	for want, end := range map[error]func(nc net.Conn, r *bufio.Reader){
		syscall.ECONNRESET:     func(nc net.Conn, _ *bufio.Reader) { resetConn(nc) },
		os.ErrDeadlineExceeded: func(_ net.Conn, r *bufio.Reader) { _, _ = r.ReadByte() },
	} {
		address := sockettest.Upstream(t, func(nc net.Conn, r *bufio.Reader) {
			_, _ = requestOn(r)
			_, _ = io.WriteString(nc, okAnswer)
			_, _ = requestOn(r)
			end(nc, r)
		})
		p := poolTo(t, &Client{ResponseTimeout: 200 * time.Millisecond}, endpointOf(t, address))
		_, _ = ask(t, p, "/")
		c := p.client.NewCall(nil)
		defer c.Release()
		c.Begin("POST", "a", "/")
		err := p.Send(c)
		var fault *CallError
		var op *net.OpError
		if !errors.As(err, &fault) || !fault.Reused || !fault.RequestSent || fault.Phase != SendingRequest {
			t.Errorf("%#v", err)
		}
		if !errors.Is(err, want) || !errors.As(err, &op) || op.Op != "read" || op.Addr.String() != address {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

// resetConn resets a connection that an origin has, without what TLS says at the end.
func resetConn(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// unpolled hides the socket of a connection, which then cannot be polled, as on Windows.
type unpolled struct{ net.Conn }

// A connection whose socket cannot be polled is used again, unless the upstream has
// closed it or has sent bytes that nobody asked for.
func TestIdleRead_ReusesOpenConnections(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for topic, does := range map[string]func(upstream net.Conn){
			"nothing":                nil,
			"closes":                 func(c net.Conn) { c.Close() },
			"sends unexpected bytes": func(c net.Conn) { _, _ = io.WriteString(c, lined("HTTP/1.1 200 OK|Content-Length: 4||evil")) },
		} {
			conns := make(chan net.Conn, 10)
			address := sockettest.Upstream(t, func(nc net.Conn, r *bufio.Reader) {
				conns <- nc
				eachRequest(r, func(string) { _, _ = io.WriteString(nc, okAnswer) })
			})
			to := endpointOf(t, address)
			to.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
				nc, err := net.Dial(network, address)
				return unpolled{nc}, err
			}
			p := poolTo(t, &Client{}, to)
			request := func() {
				t.Helper()
				if got, err := ask(t, p, "/"); got != "ok" || err != nil || p.Idle() != 1 {
					t.Errorf("%s: got %q, %v, %d idle", topic, got, err, p.Idle())
				}
			}
			request()
			upstream := await.Value(t, conns, "connection")
			if does != nil {
				does(upstream)
				await.Until(t, topic, func() bool { return len(p.kept()[0].idleRead) == 1 })
			}
			for range 3 {
				request()
			}
			if opened := len(conns); (opened == 0) != (does == nil) || opened > 1 {
				t.Errorf("%s: %d more connections", topic, opened)
			}
		}
	})
}

// A connection that waits unpolled has no deadline, and what waits for it ends with it.
func TestIdleRead_EndsWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		p := (&Client{ResponseTimeout: time.Second, IdleConnTimeout: time.Hour}).NewPool(pipes(func(theirs net.Conn) {
			dials++
			eachRequest(bufio.NewReader(theirs), func(string) { _, _ = io.WriteString(theirs, okAnswer) })
		}))
		for range 3 {
			if got, err := ask(t, p, "/"); got != "ok" || err != nil || dials != 1 {
				t.Errorf("got %q, %v, %d connections", got, err, dials)
			}
			time.Sleep(time.Minute)
		}
		time.Sleep(2 * time.Hour)
		if p.Idle() != 0 {
			t.Errorf("%d are idle", p.Idle())
		}
		_, _ = ask(t, p, "/")
		p.Close() // the bubble ends when all goroutines have ended
	})
}
