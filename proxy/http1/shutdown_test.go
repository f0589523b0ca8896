package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/internal/socket"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

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
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
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
			await.Until(t, "connection", func() bool { return s.Connections() == 1 })
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
	await.Until(t, "connection", func() bool { return s.Connections() == 1 })
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(t.Context()) }()
	if err := await.Value(t, done, "end of Shutdown"); err != nil {
		t.Error(err)
	}
}

// A server that only announces the end of its connections serves new ones.
func TestServer_ServesAfterDisableKeepAlives(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Handler: says}
	s.DisableKeepAlives()
	served := make(chan error, 1)
	go func() { served <- sockettest.Accept(l, s.ServeConn) }()
	sockettest.Dial(t, l.Addr().String(), lined("GET / HTTP/1.1|Host: a||")).WantStatus(200)
	l.Close()
	if err := errors.Join(s.Shutdown(t.Context()), await.Value(t, served, "end of accepting")); err != nil {
		t.Error(err)
	}
}
