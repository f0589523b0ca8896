package http1

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
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
		for {
			said, err := requestOn(r)
			if err != nil {
				return
			}
			seen <- said
			_, _ = io.WriteString(nc, okAnswer)
		}
	})
	client := &Client{}
	p := client.NewPool(endpointOf(t, address))
	defer p.Close()
	var calls [kept]*Call
	for i := range calls {
		calls[i] = client.NewCall(nil)
		calls[i].Begin("GET", "a", "/")
		if err := p.Send(calls[i]); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(calls[i].Body())
		await.Value(t, seen, "request")
	}
	for i := range calls {
		calls[i].Release()
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
	c := client.NewCall(nil)
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
	client := &Client{}
	p := client.NewPool(endpointOf(t, address))
	defer p.Close()
	if got, err := ask(t, p, "/"); got != "ok" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	c := client.NewCall(nil)
	defer c.Release()
	h := c.Begin("GET", "a", "/")
	for range 400 {
		h.Add("X", strings.Repeat("x", 32<<10))
	}
	wait := time.AfterFunc(50*time.Millisecond, func() { close(began) })
	defer wait.Stop()
	if err := p.Send(c); err != nil || !c.Reused() {
		t.Fatalf("%v, reused: %v", err, c.Reused())
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
		client := &Client{ResponseTimeout: 200 * time.Millisecond}
		p := client.NewPool(endpointOf(t, address))
		defer p.Close()
		_, _ = ask(t, p, "/")
		c := client.NewCall(nil)
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
