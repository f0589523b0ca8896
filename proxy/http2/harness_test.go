package http2

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/sockettest"
)

// enough is how long a test waits for what must happen. It is a failure to reach it.
const enough = time.Minute

// A handler is a Handler of two functions.
type handler struct {
	begin func(s *Stream) bool // nil for one that returns true
	serve func(s *Stream)
}

func (h handler) BeginHTTP2(s *Stream) bool { return h.begin == nil || h.begin(s) }
func (h handler) ServeHTTP2(s *Stream)      { h.serve(s) }

// say responds with a text.
func say(s *Stream, status int, text string) {
	s.Start(status)
	s.Add("Content-Type", "text/plain")
	_ = s.Send([]byte(text))
}

// echo responds with the request body, as it comes.
func echo(s *Stream) {
	if err := s.Begin(200, new(http1.Fields), -1); err != nil {
		return
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := s.Read(buf)
		if n > 0 {
			if _, err := s.Write(buf[:n]); err != nil {
				return
			}
			if s.Flush() != nil {
				return
			}
		}
		if err == io.EOF {
			_ = s.End(s.Trailer())
			return
		}
		if err != nil {
			return
		}
	}
}

// A testServer listens until the test ends.
type testServer struct {
	*testing.T
	*Server
	addr string
}

// startServer lets a server listen with this handler.
func startServer(t *testing.T, h handler, change ...func(*Server)) *testServer {
	t.Helper()
	s := &Server{Handler: h, Timeouts: http1.Timeouts{Header: enough, Body: enough, Write: enough, Idle: enough}}
	for _, f := range change {
		f(s)
	}
	l := sockettest.Listen(t)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.ServeConn(c, nil) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Shutdown(ctx) // closes what is left
		all.Wait()
	})
	return &testServer{t, s, l.Addr().String()}
}

// A client speaks HTTP/2 frame by frame.
type client struct {
	*testing.T
	*http2.Framer
	net.Conn
	block   bytes.Buffer
	encoder *hpack.Encoder
	body    map[uint32][]byte
	next    uint32 // the next stream, of tests that count them
}

// dial opens a connection with these settings.
func (t *testServer) dial(settings ...http2.Setting) *client {
	t.Helper()
	nc, err := net.Dial("tcp", t.addr)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t.T, nc, settings...)
}

// newClient speaks HTTP/2 over nc, with these settings, until the test ends.
func newClient(t *testing.T, nc net.Conn, settings ...http2.Setting) *client {
	t.Helper()
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(enough))
	c := &client{T: t, Framer: http2.NewFramer(nc, nc), Conn: nc, body: map[uint32][]byte{}, next: 1}
	c.encoder = hpack.NewEncoder(&c.block)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.AllowIllegalWrites = true
	c.must(io.WriteString(nc, http2.ClientPreface))
	c.must(0, c.WriteSettings(settings...))
	return c
}

func (c *client) must(_ int, err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// encode returns a header block with pairs of names and values.
func (c *client) encode(fields ...string) []byte {
	c.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		c.must(0, c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(c.block.Bytes())
}

func get(path string, more ...string) []string {
	return append([]string{":method", "GET", ":scheme", "http", ":authority", "a.example", ":path", path}, more...)
}

func post(path string, more ...string) []string {
	return append([]string{":method", "POST", ":scheme", "http", ":authority", "a.example", ":path", path}, more...)
}

// ask sends a request without a body, begin one whose body follows.
func (c *client) ask(id uint32, fields ...string) {
	c.Helper()
	block := c.encode(fields...)
	first := block[:min(len(block), maxFrame)]
	block = block[len(first):]
	c.must(0, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: len(block) == 0, EndStream: true}))
	for len(block) > 0 {
		piece := block[:min(len(block), maxFrame)]
		block = block[len(piece):]
		c.must(0, c.WriteContinuation(id, len(block) == 0, piece))
	}
}

func (c *client) begin(id uint32, fields ...string) {
	c.Helper()
	c.must(0, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.encode(fields...), EndHeaders: true}))
}

func (c *client) data(id uint32, text string) {
	c.Helper()
	c.must(0, c.WriteData(id, false, []byte(text)))
}
func (c *client) last(id uint32, text string) {
	c.Helper()
	c.must(0, c.WriteData(id, true, []byte(text)))
}

// until reads frames until one is wanted. It collects bodies.
func (c *client) until(what string, want func(http2.Frame) bool) {
	c.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.Fatalf("no %s: %v", what, err)
		}
		if d, ok := f.(*http2.DataFrame); ok {
			c.body[d.StreamID] = append(c.body[d.StreamID], d.Data()...)
		}
		if want(f) {
			return
		}
	}
}

// status returns how a stream is answered: by a status, or the code by which it or the
// connection ends.
func (c *client) status(id uint32) (status string) {
	c.Helper()
	c.until("answer", func(f http2.Frame) bool {
		status = outcome(f, id)
		return status != "" && status != "100"
	})
	return status
}

// outcome returns what a frame means for a stream: a status, the code of RST_STREAM or
// GOAWAY, or nothing.
func outcome(f http2.Frame, id uint32) string {
	if g, ok := f.(*http2.GoAwayFrame); ok && g.ErrCode != http2.ErrCodeNo {
		return "GOAWAY " + g.ErrCode.String()
	}
	if f.Header().StreamID != id {
		return ""
	}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return f.PseudoValue("status")
	case *http2.RSTStreamFrame:
		return f.ErrCode.String()
	}
	return ""
}

// wants fails the test unless a stream is answered so.
func (c *client) wants(id uint32, want string) {
	c.Helper()
	if got := c.status(id); got != want {
		c.Errorf("stream %d: %s; want %s", id, got, want)
	}
}

// ends waits for the end of a stream and returns its body.
func (c *client) ends(id uint32) string {
	c.Helper()
	c.until("end of the stream", func(f http2.Frame) bool {
		return endsStream(f, id)
	})
	return string(c.body[id])
}

// endsStream reports whether f ends a stream in an orderly way.
func endsStream(f http2.Frame, id uint32) bool {
	h := f.Header()
	return h.StreamID == id && (h.Type == http2.FrameData || h.Type == http2.FrameHeaders) && h.Flags.Has(http2.FlagDataEndStream)
}
