package http2

import (
	"testing"

	"golang.org/x/net/http2"
)

// Uploads that are answered early are reset, any number of them. What the client sends before it knows
// is ignored: the rest of the bodies, and trailers (RFC 9113 section 5.1).
func TestAbuse_WhatFollowsAResetIsIgnored(t *testing.T) {
	const streams = 250
	f := startServer(t, handler{begin: func(s *Stream) bool { say(s, 429, "no"); return false }}, func(s *Server) { s.MaxStreams = streams })
	c := f.dial()
	for range 3 {
		for i := range uint32(streams) {
			c.begin(c.next+2*i, post("/", "trailer", "x-sum")...)
		}
		for i := range uint32(streams) {
			c.data(c.next+2*i, "the rest")
			c.must(0, c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.next + 2*i, BlockFragment: c.encode("x-sum", "1"), EndHeaders: true, EndStream: true}))
		}
		c.next += 2 * streams
		c.ask(c.next, get("/")...)
		c.wants(c.next, "429")
		c.next += 2
	}
}

// DATA frames without content cost no window. They may not follow each other without end (CVE-2019-9518).
// DATA on a stream that no client can have is an error of the connection.
func TestAbuse_DataThatIsNone(t *testing.T) {
	f := startServer(t, handler{serve: echo})
	c := f.dial()
	c.begin(1, post("/")...)
	for range 3 {
		for range maxEmptyData {
			c.data(1, "")
		}
		c.data(1, "x")
	}
	c.last(1, "")
	if got := c.ends(1); got != "xxx" {
		t.Errorf("got %q", got)
	}
	c.begin(3, post("/")...)
	for range maxEmptyData + 1 {
		c.data(3, "")
	}
	c.wants(0, "GOAWAY ENHANCE_YOUR_CALM")
	for _, id := range []uint32{0, 2} {
		c = f.dial()
		c.begin(1, post("/")...)
		c.data(id, "x")
		c.wants(0, "GOAWAY PROTOCOL_ERROR")
	}
}
