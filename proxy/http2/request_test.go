package http2

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/pooltest"
)

// refusing responds with the status of Stream.Err, and otherwise with 200 and the request.
func refusing() handler {
	return handler{begin: func(s *Stream) bool {
		if err, ok := s.Err.(*http1.Error); ok {
			say(s, err.Status, err.Error())
			return false
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s %s %d\n", s.Method, s.Authority, s.Path, s.Length)
		for f := range s.Fields.All() {
			fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
		}
		say(s, 200, b.String())
		return false
	}}
}

func TestRequest_FieldsAreThoseOfHTTP1(t *testing.T) {
	c := startServer(t, refusing()).dial()
	c.ask(1, get("/x?a=b", "user-agent", "me", "x-one_two", "1", "cookie", "a=1", "accept", "*/*", "cookie", "b=2")...)
	c.wants(1, "200")
	want := "GET a.example /x?a=b 0\nUser-Agent: me\nX-One_two: 1\nAccept: */*\nCookie: a=1; b=2\n"
	if got := c.ends(1); got != want {
		t.Errorf("received\n%s\nwant\n%s", got, want)
	}
	c.ask(3, ":method", "GET", ":scheme", "http", ":path", "/", "host", "b.example")
	c.wants(3, "200")
	if got := c.ends(3); got != "GET b.example / 0\n" {
		t.Errorf("received %s", got)
	}
}

// A malformed request is refused, and its stream is reset after that (RFC 9113 section 8.1.1).
func TestRequest_Malformed(t *testing.T) {
	c := startServer(t, refusing()).dial()
	id := uint32(1)
	for name, r := range map[string]struct {
		status string
		fields []string
	}{
		"capitals":               {"400", get("/", "X-A", "1")},
		"space in a name":        {"400", get("/", "x a", "1")},
		"no name":                {"400", get("/", "", "1")},
		"blank before a value":   {"400", get("/", "x-a", " 1")},
		"tab after a value":      {"400", get("/", "x-a", "1\t")},
		"line break":             {"400", get("/", "x-a", "1\r\nx-b: 2")},
		"blank in a cookie":      {"400", get("/", "cookie", "a=1 ")},
		"connection":             {"400", get("/", "connection", "close")},
		"keep-alive":             {"400", get("/", "keep-alive", "1")},
		"proxy-connection":       {"400", get("/", "proxy-connection", "close")},
		"transfer-encoding":      {"400", get("/", "transfer-encoding", "chunked")},
		"upgrade":                {"400", get("/", "upgrade", "h2c")},
		"te":                     {"400", get("/", "te", "gzip")},
		"unknown pseudo-field":   {"400", get("/", ":proto", "x")},
		"pseudo-field twice":     {"400", get("/", ":path", "/b")},
		"pseudo-field too late":  {"400", get("/", "x-a", "1", ":protocol", "x")},
		"protocol of a GET":      {"400", get("/", ":protocol", "websocket")},
		"no path":                {"400", []string{":method", "GET", ":scheme", "http", ":authority", "a"}},
		"no scheme":              {"400", []string{":method", "GET", ":path", "/", ":authority", "a"}},
		"no method":              {"400", []string{":scheme", "http", ":path", "/", ":authority", "a"}},
		"no authority":           {"400", []string{":method", "GET", ":scheme", "http", ":path", "/"}},
		"path without a slash":   {"400", []string{":method", "GET", ":scheme", "http", ":path", "x", ":authority", "a"}},
		"star for a GET":         {"400", []string{":method", "GET", ":scheme", "http", ":path", "*", ":authority", "a"}},
		"blank in the path":      {"400", []string{":method", "GET", ":scheme", "http", ":path", "/ x", ":authority", "a"}},
		"blank in the method":    {"400", []string{":method", "GE T", ":scheme", "http", ":path", "/", ":authority", "a"}},
		"user in the authority":  {"400", []string{":method", "GET", ":scheme", "http", ":path", "/", ":authority", "u@a"}},
		"another host":           {"400", get("/", "host", "b.example")},
		"two hosts":              {"400", get("/", "host", "a.example", "host", "a.example")},
		"two lengths":            {"400", get("/", "content-length", "1", "content-length", "2")},
		"length with a sign":     {"400", get("/", "content-length", "+1")},
		"length and no body":     {"400", get("/", "content-length", "1")},
		"CONNECT":                {"405", []string{":method", "CONNECT", ":authority", "a:80"}},
		"expectation":            {"417", get("/", "expect", "200-maybe")},
		"header list too large":  {"431", get("/", "x-a", strings.Repeat("a", 33<<10))},
		"too many fields":        {"431", get("/", strings.Fields(strings.Repeat("x-a 1 ", 130))...)},
		"equal hosts":            {"200", get("/", "host", "a.example")},
		"equal lengths":          {"200", get("/", "content-length", "0", "content-length", "0")},
		"te: trailers":           {"200", get("/", "te", "trailers")},
		"every OPTIONS":          {"200", []string{":method", "OPTIONS", ":scheme", "http", ":path", "*", ":authority", "a"}},
		"a priority is accepted": {"200", get("/", "priority", "u=1, i")},
	} {
		c.ask(id, r.fields...)
		if got := c.status(id); got != r.status {
			t.Errorf("%s: %s; want %s", name, got, r.status)
		}
		if r.status == "400" {
			if got := c.status(id); got != "PROTOCOL_ERROR" {
				t.Errorf("%s: %s after the response; want PROTOCOL_ERROR", name, got)
			}
		}
		id += 2
	}
}

// The body has the length that was announced, whoever notices it.
func TestRequest_ContentLengthIsThatOfTheBody(t *testing.T) {
	f := startServer(t, handler{serve: echo})
	for name, parts := range map[string][]string{"less": {"123", "4"}, "more": {"123", "456"}, "more at once": {"123456", ""}} {
		c := f.dial()
		c.begin(1, post("/", "content-length", "5")...)
		c.data(1, parts[0])
		c.last(1, parts[1])
		for got := ""; got != "PROTOCOL_ERROR"; {
			if got = c.status(1); got != "200" && got != "PROTOCOL_ERROR" {
				t.Fatalf("%s: %s; want PROTOCOL_ERROR", name, got)
			}
		}
	}
	c := f.dial()
	c.begin(1, post("/", "content-length", "5")...)
	c.data(1, "123")
	c.last(1, "45")
	c.wants(1, "200")
	if got := c.ends(1); got != "12345" {
		t.Errorf("got %q", got)
	}
}

func TestRequest_Trailers(t *testing.T) {
	c := startServer(t, handler{serve: echo}).dial()
	c.begin(1, post("/", "trailer", "x-sum")...)
	c.data(1, "hello")
	c.must(0, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode("x-sum", "42", "host", "b"), EndHeaders: true, EndStream: true}))
	c.wants(1, "200")
	got := ""
	c.until("trailer section", func(f http2.Frame) bool {
		h, ok := f.(*http2.MetaHeadersFrame)
		if ok {
			for _, field := range h.Fields {
				got += field.Name + "=" + field.Value + " "
			}
		}
		return ok
	})
	if got != "x-sum=42 " || string(c.body[1]) != "hello" {
		t.Errorf("trailer %q after %q; want x-sum alone", got, c.body[1])
	}
	c.begin(3, post("/")...)
	c.must(0, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: c.encode("X-Sum", "42"), EndHeaders: true, EndStream: true}))
	c.wants(3, "PROTOCOL_ERROR")
	c.begin(5, post("/")...)
	c.begin(5, "x-sum", "42") // and does not end the stream
	c.wants(5, "PROTOCOL_ERROR")
}

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
