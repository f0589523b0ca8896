package http2

import (
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/pooltest"
)

type noAborter struct{}

func (noAborter) Abort() {}

// Nothing of a request is left in a stream that goes back to the pool: it keeps memory, and what
// its handler keeps.
func TestStream_ResetLeavesNothing(t *testing.T) {
	s := new(Stream)
	pooltest.Fill(t, s, noAborter{})
	s.reset()
	if s.announced != -1 {
		t.Errorf("announced is %d; want -1, for none", s.announced)
	}
	s.announced = 0
	pooltest.Empty(t, s, "Stream.State")
}

// A request that ends before its handler has begun leaves nothing to the next one, in whatever way
// it ends.
func TestStream_UnbegunLeavesNothing(t *testing.T) {
	for name, end := range map[string]func(c *client){
		"error of the connection": func(c *client) { c.data(0, "x") },
		"error of the stream":     func(c *client) { c.must(0, c.WriteWindowUpdate(1, 1<<31-1)) },
		"reset":                   func(c *client) { c.must(0, c.WriteRSTStream(1, http2.ErrCodeCancel)) },
		"too much":                func(c *client) { c.data(1, "more than was announced") },
		"bad trailer":             func(c *client) { c.begin(1, ":path", "/") },
		"block that is not valid": func(c *client) {
			c.must(0, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0xff, 0xff}, EndHeaders: true}))
		},
		"half of a block": func(c *client) {
			c.must(0, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: c.encode(get("/")...)}))
		},
		"gone": func(*client) {},
	} {
		t.Run(name, func(t *testing.T) {
			f := startServer(t, handler{serve: echo})
			for range 20 {
				c := f.dial()
				together := new(collected)
				c.Framer = http2.NewFramer(together, c.Conn)
				c.AllowIllegalWrites = true
				c.begin(1, post("/", "content-length", "5")...)
				c.data(1, "evil")
				end(c)
				c.must(c.Conn.Write(together.b))
				_ = c.Conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c.Conn)
				c.Conn.Close()

				c = f.dial()
				c.begin(1, post("/")...)
				c.last(1, "honest")
				if got := c.ends(1); got != "honest" {
					t.Fatalf("the next request has the body %q", got)
				}
			}
		})
	}
}

// A body that was dropped because its stream has failed does not look complete, although its end had
// arrived.
func TestStream_ADroppedBodyIsNotComplete(t *testing.T) {
	for name, end := range map[string]func(c *client){
		"reset":                   func(c *client) { c.must(0, c.WriteRSTStream(1, http2.ErrCodeCancel)) },
		"error of the stream":     func(c *client) { c.must(0, c.WriteWindowUpdate(1, 1<<31-1)) },
		"error of the connection": func(c *client) { c.data(0, "x") },
		"gone":                    func(c *client) { c.Conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			begun, read := make(chan bool, 1), make(chan error, 1)
			f := startServer(t, handler{serve: func(s *Stream) {
				begun <- true
				<-s.Context().Done()
				_, err := s.Read(make([]byte, 100))
				read <- err
			}})
			c := f.dial()
			c.begin(1, post("/")...)
			c.last(1, "the whole body")
			await.Value(t, begun, "the handler")
			end(c)
			if err := await.Value(t, read, "the end of reading"); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("reading ended with %v", err)
			}
		})
	}
}

// A collected holds what was written.
type collected struct{ b []byte }

func (c *collected) Write(p []byte) (int, error) {
	c.b = append(c.b, p...)
	return len(p), nil
}
