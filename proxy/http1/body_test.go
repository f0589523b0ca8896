package http1

import (
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-proxy/weir/test/sockettest"
)

// countingBuffers counts the buffers for bodies that s takes.
func countingBuffers(taken *atomic.Int64) func(*Server) {
	return func(s *Server) {
		s.buffers.bodies.New = func() any {
			taken.Add(1)
			return new([BodyBufferSize]byte)
		}
	}
}

// A body of known length that is read by Read goes straight into the buffer of its reader: a
// handler that holds a body of a slow client holds it once.
func TestBody_ReadTakesNoBuffer(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		var taken atomic.Int64
		p := serving(t, func(x *Exchange) {
			body := make([]byte, 60_000)
			n, err := io.ReadFull(x.Body(), body)
			if err != nil {
				t.Errorf("read: %v", err)
			}
			if _, err := x.Body().Read(body[:1]); err != io.EOF {
				t.Errorf("after the end: %v; want io.EOF", err)
			}
			x.Begin(200)
			_ = x.Send(body[n-5 : n])
		}, countingBuffers(&taken))
		w := p.dial(t, lined("POST /1 HTTP/1.1|Host: a|Content-Length: 60000||")+"first")
		for range 58 {
			w.Send(strings.Repeat("x", 1000))
		}
		w.Send(strings.Repeat("x", 1990) + "ended" + lined("POST /2 HTTP/1.1|Host: a|Content-Length: 60000||"))
		if _, body := w.WantStatus(200); body != "ended" {
			t.Errorf("got %q", body)
		}
		w.Send(strings.Repeat("x", 59_995) + "again")
		if _, body := w.WantStatus(200); body != "again" {
			t.Errorf("got %q", body)
		}
		if n := taken.Load(); n > 0 && !poisoned {
			t.Errorf("%d buffers taken, want none", n)
		}
	})
}

// A body that nobody reads is discarded in the buffer of its head, whether the connection goes on
// or ends.
func TestServer_UnreadBodiesTakeNoBuffer(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		var taken atomic.Int64
		p := serving(t, says, countingBuffers(&taken))
		w := p.dial(t, lined("POST /1 HTTP/1.1|Host: a|Content-Length: 60000||")+strings.Repeat("x", 100))
		w.WantStatus(200)
		w.Send(strings.Repeat("x", 59_900) + lined("POST /2 HTTP/1.1|Host: a|Transfer-Encoding: chunked||ea60|"))
		w.WantStatus(200)
		w.Send(strings.Repeat("x", 60_000) + lined("|0|A: b||GET /3 HTTP/1.1|Host: a||"))
		if _, body := w.WantStatus(200); body != "/3" {
			t.Errorf("got %q", body)
		}
		w.Send(lined("POST /4 HTTP/1.1|Host: a|Connection: close|Content-Length: 60000||"))
		w.WantStatus(200)
		w.Send(strings.Repeat("x", 60_000))
		w.WantClosed()
		if n := taken.Load(); n > 0 {
			t.Errorf("%d buffers taken, want none", n)
		}
	})
}
