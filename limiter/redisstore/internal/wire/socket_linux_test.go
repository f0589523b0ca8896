//go:build linux && !386 && !race

package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/rounds"
)

// pair is both ends of a connection over network.
func pair(t *testing.T, network string) (near, far net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		near.Close()
		far.Close()
	})
	return near, far
}

// A socketConn must return what the net.Conn returns that it stands for.
func TestSocketConn_ReturnsWhatNetReturns(t *testing.T) {
	passed := time.Unix(1, 0)
	cases := []struct {
		name  string
		do    func(c, far net.Conn) (int, error)
		n     int
		cause error
	}{
		{"reads what is there", func(c, far net.Conn) (int, error) {
			_, _ = far.Write([]byte("abc"))
			return c.Read(make([]byte, 8))
		}, 3, nil},
		{"reads nothing into nothing", func(c, _ net.Conn) (int, error) { return c.Read(nil) }, 0, nil},
		{"end of the stream", func(c, far net.Conn) (int, error) {
			far.Close()
			return c.Read(make([]byte, 8))
		}, 0, io.EOF},
		{"read deadline", func(c, _ net.Conn) (int, error) {
			_ = c.SetReadDeadline(passed)
			return c.Read(make([]byte, 8))
		}, 0, os.ErrDeadlineExceeded},
		{"write deadline", func(c, _ net.Conn) (int, error) {
			_ = c.SetWriteDeadline(passed)
			return c.Write([]byte("abc"))
		}, 0, os.ErrDeadlineExceeded},
		{"read after close", func(c, _ net.Conn) (int, error) {
			c.Close()
			return c.Read(make([]byte, 8))
		}, 0, net.ErrClosed},
		{"write after close", func(c, _ net.Conn) (int, error) {
			c.Close()
			return c.Write([]byte("abc"))
		}, 0, net.ErrClosed},
		{"write to a closed reader", func(c, _ net.Conn) (int, error) {
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
			return c.Write([]byte("abc"))
		}, 0, syscall.EPIPE},
		{"writes nothing", func(c, _ net.Conn) (int, error) { return c.Write(nil) }, 0, nil},
	}
	for _, network := range []string{"tcp", "unix"} {
		for _, tc := range cases {
			t.Run(network+"/"+tc.name, func(t *testing.T) {
				for kind, wrap := range map[string]func(net.Conn) net.Conn{
					"net":    func(c net.Conn) net.Conn { return c },
					"socket": func(c net.Conn) net.Conn { return halfCloser{newSocketConn(c), c} },
				} {
					near, far := pair(t, network)
					n, err := tc.do(wrap(near), far)
					if n != tc.n || !errors.Is(err, tc.cause) {
						t.Errorf("%s: %d, %v; want %d, %v", kind, n, err, tc.n, tc.cause)
					}
				}
			})
		}
	}
}

// A halfCloser is a connection with the CloseWrite of another.
type halfCloser struct {
	net.Conn
	under net.Conn
}

func (h halfCloser) CloseWrite() error { return h.under.(interface{ CloseWrite() error }).CloseWrite() }

// A reset is an error that says so.
func TestSocketConn_SaysThatItWasReset(t *testing.T) {
	near, far := pair(t, "tcp")
	_ = far.(*net.TCPConn).SetLinger(0)
	far.Close()
	_, err := newSocketConn(near).Read(make([]byte, 1))
	var op *net.OpError
	if !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &op) || op.Op != "read" {
		t.Errorf("read after a reset: %v", err)
	}
}

// What does not fit into the socket's buffer is written when there is room, while the
// other direction is read.
func TestSocketConn_WritesMoreThanFits(t *testing.T) {
	near, far := pair(t, "tcp")
	c := newSocketConn(near)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	go func() { _, _ = io.Copy(far, far) }()
	written := make(chan error, 1)
	go func() {
		n, err := c.Write(sent)
		if err == nil && n != len(sent) {
			err = io.ErrShortWrite
		}
		written <- err
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Error("what came back is not what was sent")
	}
}

// Closing ends a Read and a Write that wait.
func TestSocketConn_CloseEndsWaits(t *testing.T) {
	near, _ := pair(t, "tcp")
	c := newSocketConn(near)
	ended := make(chan error, 2)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()
	go func() {
		_, err := c.Write(make([]byte, 64<<20)) // nobody reads it
		ended <- err
	}()
	c.Close()
	for range 2 {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("a wait that was closed: %v", err)
		}
	}
}

func TestSocketConn_AllocatesNothing(t *testing.T) {
	near, far := pair(t, "tcp")
	c, buf := newSocketConn(near), make([]byte, 16)
	n := rounds.Allocations(100, func() {
		_, _ = c.Write(buf[:8])
		_, _ = io.ReadFull(far, buf[:8])
		_, _ = far.Write(buf[:8])
		_, _ = io.ReadFull(c, buf[:8])
	})
	if n != 0 {
		t.Errorf("%v allocations for a write and a read", n)
	}
}
