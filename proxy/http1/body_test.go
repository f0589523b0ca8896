package http1

import (
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-proxy/weir/limiter/reuse"
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
		if n := taken.Load(); n > 0 && !reuse.Poisoned {
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

func TestChunked_Refused(t *testing.T) {
	for _, c := range []struct {
		topic, raw string
		want       error
	}{
		{"size of 2^62", "4000000000000000|", ErrChunk},
		{"no size", "|hello|0|", ErrChunk},
		{"only an extension", ";a|hello|0|", ErrChunk},
		{"blank within the size", "5 5|hello|0|", ErrChunk},
		{"CR in quotes", "5;a=\"\rb\"|hello|0|", ErrChunk},
		{"LF in quotes", "5;a=\"\nb\"|hello|0|", ErrChunk},
		{"NUL in quotes", "5;a=\"\x00b\"|hello|0|", ErrChunk},
		{"line end after a backslash in quotes", "5;a=\"\\|hello|0|", ErrChunk},
		{"CR and something", "5\rXhello|0|", ErrChunk},
		{"NUL in an extension", "5;\x00|hello|0|", ErrChunk},
		{"DEL in an extension", "5;\x7f|hello|0|", ErrChunk},
		{"extension too long", "5;" + strings.Repeat("a", 300) + "|hello|0|", ErrChunkLine},
		{"an empty line too many", "5|hello||0|", ErrChunk},
		{"LF after the data", "5|hello\n0|", ErrChunk},
		{"a request in between", "INVALID|GET / HTTP/1.1|", ErrChunk},
		{"no last chunk", "5|hello|", errUnended},
	} {
		if data, rest, err := chunksSplit(t, lined(c.raw)); !errors.Is(err, c.want) {
			t.Errorf("%s: got %q, %q, %v; want %v", c.topic, data, rest, err, c.want)
		}
	}
}

func TestChunked_Accepted(t *testing.T) {
	for _, c := range []struct{ raw, data, rest string }{
		{"5|hello|1|!|0||", "hello!", "|"},
		{"5;a=b|hello|000;c||", "hello", "|"},
		{"5;a=b;c=\"d; \\\"e\x80\"|hello|0||", "hello", "|"},
		{"5 ;a\t= b|hello|0 ; c||", "hello", "|"},
		{"0000000000000005|hello|0000000000000000000000||", "hello", "|"},
		{"a|0123456789|0|A: b||GET /", "0123456789", "A: b||GET /"},
		{"0||", "", "|"},
		{strings.Repeat("1|x|", 10_000) + "0||", strings.Repeat("x", 10_000), "|"},
	} {
		if len(c.raw) > 1000 { // too long to try each offset
			c.raw, c.rest = lined(c.raw), lined(c.rest)
			if data, rest, err := chunksAt(c.raw, -1); data != c.data || rest != c.rest || err != nil {
				t.Errorf("got %d bytes, %q, %v; want %d, %q", len(data), rest, err, len(c.data), c.rest)
			}
			continue
		}
		if data, rest, err := chunksSplit(t, lined(c.raw)); data != c.data || rest != lined(c.rest) || err != nil {
			t.Errorf("%q: got %q, %q, %v; want %q, %q", c.raw, data, rest, err, c.data, c.rest)
		}
	}
}

// An upstream may pad sizes, and have long extensions; other than that its chunks are read
// like those of clients.
func TestChunked_OfResponses(t *testing.T) {
	for _, c := range []struct {
		raw, data string
		want      error
	}{
		{"5  |hello|0   ||", "hello", nil},
		{"5\t|hello|0||", "hello", nil},
		{"5;" + strings.Repeat("a", 4000) + "|hello|0||", "hello", nil},
		{"5;" + strings.Repeat("a", 4100) + "|hello|0||", "", ErrChunkLine},
		{strings.Repeat("1;"+strings.Repeat("a", 1000)+"|x|", 60) + "0||", strings.Repeat("x", 60), nil},
		{strings.Repeat("1;"+strings.Repeat("a", 1000)+"|x|", 70) + "0||", "", ErrChunkOverhead},
		{"5 x|hello|0||", "", ErrChunk},
		{"5\nhello|0||", "", ErrChunk},
		{"4000000000000000|", "", ErrChunk},
		{"5;a=\"\n\"|hello|0||", "", ErrChunk},
	} {
		if len(c.raw) > 10_000 { // too long to try each offset
			l := Limits{}.forResponses()
			if data, _, err := chunksOf(lined(c.raw), -1, &l); data != c.data || !errors.Is(err, c.want) {
				t.Errorf("%.40q: got %q, %v; want %q, %v", c.raw, data, err, c.data, c.want)
			}
			continue
		}
		if data, err := responseChunks(t, lined(c.raw)); data != c.data || !errors.Is(err, c.want) {
			t.Errorf("%.40q: got %q, %v; want %q, %v", c.raw, data, err, c.data, c.want)
		}
	}
}

// What is written can be read, and nothing is not written as the last chunk.
func TestChunked_RoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var raw []byte
		var want strings.Builder
		for range random.IntN(5) {
			piece := strings.Repeat("d", random.IntN(70_000)*random.IntN(2))
			want.WriteString(piece)
			raw = appendChunk(raw, []byte(piece))
		}
		raw = append(raw, lastChunk...)
		if data, rest, err := chunksAt(string(raw), len(raw)); data != want.String() || rest != "" || err != nil {
			t.Fatalf("got %d bytes, %q, %v; want %d", len(data), rest, err, want.Len())
		}
	}
}

func TestChunked_SizesBeyond32Bits(t *testing.T) {
	limits := Limits{}.forRequests()
	for _, n := range []uint64{1, 15, 16, 255, 1 << 32, 1<<60 - 1, 1<<62 - 1} {
		var c chunkedReader
		line := strconv.AppendUint(nil, n, 16)
		if _, _, err := c.next(append(line, "\r\n"...), &limits); err != nil || c.left != n || c.state != inData {
			t.Errorf("%s: got %d, %v", line, c.left, err)
		}
	}
}
