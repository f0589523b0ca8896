package http1

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/internal/socket"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// What an upstream sends after its answer is no answer to the next request, wherever it waits: in the same
// record, in the next, or in the socket.
func TestTLS_UnsolicitedBytesAreNotResponses(t *testing.T) {
	const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	// An answer that fills the reader's buffer.
	head := lined("HTTP/1.1 200 OK|Content-Length: 8151||")
	full := head + strings.Repeat("x", headBufferSize-len(head))
	for where, records := range map[string][]string{
		"same record": {full + evil}, "next record": {full, evil}, "part of a record": {full, evil[:1], evil[1:]}, "next record, short": {okAnswer, evil},
	} {
		s := sockettest.NewSecured(t)
		connections, sent := make(chan bool, 10), make(chan bool, 10)
		address := sockettest.Upstream(s, func(c net.Conn, r *bufio.Reader) {
			connections <- true
			eachRequest(r, func(string) {
				for _, record := range records {
					_, _ = io.WriteString(c, record)
				}
				sent <- true
			})
		})
		p := poolTo(t, &Client{}, endpointOf(s, address))
		for range 3 {
			if got, err := ask(t, p, "/"); strings.Contains(got, "evil") || err != nil {
				t.Errorf("%s: got %q, %v", where, got, err)
			}
			await.Value(t, connections, where+": a new connection")
			await.Value(t, sent, where+": all is sent")
			await.Until(t, where+": it has come", func() bool {
				return !slices.ContainsFunc(p.kept(), func(u *clientConn) bool { return u.peerState() == socket.Open })
			})
		}
	}
}

// A bytewise connection sends each byte by itself, so that the other side seldom has a whole record.
type bytewise struct{ net.Conn }

func (b bytewise) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var more int
		more, err = b.Conn.Write(p[n : n+1])
		n += more
	}
	return n, err
}

// Records that come in pieces, from clients and from upstreams, are read as any others.
func TestTLS_RecordsInPieces(t *testing.T) {
	s := sockettest.NewSecured(t)
	address := sockettest.Upstream(t, func(c net.Conn, _ *bufio.Reader) {
		secure := tls.Server(bytewise{c}, s.Server)
		eachRequest(bufio.NewReader(secure), func(string) { _, _ = io.WriteString(secure, okAnswer) })
	})
	p := proxyTo(s, address, nil)
	client := sockettest.NewClient(t, tls.Client(bytewise{p.dial(t, "").Conn}, s.Client))
	defer client.Close()
	for range 5 {
		client.Send(lined("GET /1 HTTP/1.1|Host: a||"))
		if _, body := client.WantStatus(200); body != "ok" {
			t.Errorf("got %q", body)
		}
	}
}

// A client over TLS that sends nothing more is given up at the end of the idle timeout, and one that closes
// its connection in an orderly way at once.
func TestTLS_IdleClients(t *testing.T) {
	s := sockettest.NewSecured(t)
	address, _ := answering(t, okAnswer)
	p := proxyTo(t, address, nil)
	for closes, idle := range map[bool]time.Duration{false: 50 * time.Millisecond, true: 10 * soon} {
		ended := make(chan struct{}, 1)
		server := &Server{Handler: p.handle, Timeouts: Timeouts{Header: soon, Idle: idle}}
		serve := func(c net.Conn) { server.ServeConn(c); ended <- struct{}{} }
		l := sockettest.Listen(t)
		go func() { _ = sockettest.Accept(secureListener{l, s.Server}, serve) }()
		t.Cleanup(func() { l.Close(); server.Close() })
		client := sockettest.Dial(s, l.Addr().String(), lined("GET /1 HTTP/1.1|Host: a||"))
		client.WantStatus(200)
		if closes {
			client.Close()
		}
		await.Value(t, ended, "the end of the connection")
	}
}

// A corked connection keeps what is written once it is closed until it is uncorked, all but the last bytes.
type corked struct {
	net.Conn
	closed bool
	kept   []byte
}

func (c *corked) Write(p []byte) (int, error) {
	if !c.closed {
		return c.Conn.Write(p)
	}
	c.kept = append(c.kept, p...)
	return len(p), nil
}

func (c *corked) uncork(allBut int) {
	_ = c.SetWriteDeadline(time.Time{}) // TLS lets no write succeed after the end
	_, _ = c.Conn.Write(c.kept[:len(c.kept)-allBut])
	c.kept = c.kept[len(c.kept)-allBut:]
}

// eachEnding runs a test with TLS 1.2, whose end of a connection can be told before it is decrypted, and 1.3, and with
// nothing and with a part of the end missing.
func eachEnding(t *testing.T, test func(t testing.TB, s sockettest.Secured, missing int)) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, missing := range []int{0, 5} {
			t.Run(fmt.Sprintf("%s, %d bytes missing", tls.VersionName(version), missing), func(t *testing.T) {
				s := sockettest.NewSecured(t)
				s.Server.MaxVersion = version
				test(t, s, missing)
			})
		}
	}
}

// An answer that comes together with the end of the connection, or with a part of that, is an answer.
func TestTLS_AnswerWithTheEnd(t *testing.T) {
	eachEnding(t, func(t testing.TB, s sockettest.Secured, missing int) {
		asked := make(chan string, 10)
		address := sockettest.Upstream(t, func(c net.Conn, _ *bufio.Reader) {
			cork := &corked{Conn: c}
			secure := tls.Server(cork, s.Server)
			r := bufio.NewReader(secure)
			for n := range 2 {
				said, err := requestOn(r)
				if err != nil {
					return
				}
				asked <- said
				cork.closed = n == 1
				_, _ = io.WriteString(secure, okAnswer)
			}
			_ = secure.CloseWrite()
			cork.uncork(missing)
			_, _ = r.ReadByte() // until the other side is done
		})
		p := poolTo(t, &Client{ResponseTimeout: soon}, endpointOf(s, address))
		for range 2 {
			if got, err := ask(t, p, "/"); got != "ok" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		}
		if len(asked) != 2 {
			t.Errorf("asked %d times, want twice", len(asked))
		}
	})
}

// A request that comes together with the end of the connection, or with a part of that, is answered.
func TestTLS_RequestWithTheEnd(t *testing.T) {
	eachEnding(t, func(t testing.TB, s sockettest.Secured, missing int) {
		address, _ := answering(s, okAnswer)
		p := proxyTo(s, address, nil)
		cork := &corked{Conn: sockettest.Dial(t, p.addr, "").Conn}
		secure := tls.Client(cork, s.Client)
		client := sockettest.NewClient(t, secure)
		client.Send(lined("GET /1 HTTP/1.1|Host: a||"))
		client.WantStatus(200)
		cork.closed = true
		client.Send(lined("GET /2 HTTP/1.1|Host: a||"))
		_ = secure.CloseWrite()
		cork.uncork(missing)
		if _, body := client.WantStatus(200); body != "ok" {
			t.Errorf("got %q", body)
		}
	})
}
