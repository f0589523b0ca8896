package http2

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A bound is a Budget for all clients together.
type bound struct {
	mu         sync.Mutex
	used, most int64
}

func (b *bound) Reserve(client netip.Prefix, own, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !client.IsValid() || own <= 0 || b.used+n > b.most {
		return false
	}
	b.used += n
	return true
}

func (b *bound) Release(_ netip.Prefix, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

func (b *bound) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// fill sends a body until the server does not read any more, or all that the windows allow. Other streams
// of the connection have begun, so that it is theirs as well.
func (c *client) fill(streams int) {
	_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for i := range streams {
		id := uint32(2*i + 1)
		if c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.encode(post("/")...), EndHeaders: true}) != nil {
			return
		}
		for left := initialWindow; left > 0; left -= maxFrame {
			if c.WriteData(id, false, make([]byte, min(left, maxFrame))) != nil {
				return
			}
		}
	}
}

// Uploads that nobody reads use what the budget has, and 64 KiB of each connection besides.
func TestMemory_UploadsThatNobodyReads(t *testing.T) {
	const conns = 100
	b := &bound{most: 4 << 20}
	read := make(chan bool)
	f := startServer(t, handler{serve: func(s *Stream) {
		<-read
		for buf := make([]byte, 32<<10); ; {
			if _, err := s.Read(buf); err != nil {
				return
			}
		}
	}}, func(s *Server) { s.Budget = b })
	before := heap()
	var all sync.WaitGroup
	var clients []*client
	for range conns {
		c := f.dial()
		clients = append(clients, c)
		all.Go(func() { c.fill(15) })
	}
	all.Wait()
	for _, c := range clients {
		c.Framer, c.encoder, c.body = nil, nil, nil // the client's own
	}
	grown := heap() - before
	t.Logf("%d bytes, of which %d are reserved", grown, b.inUse())
	if grown > conns*64<<10+b.most {
		t.Errorf("%d bytes for %d connections and a budget of %d", grown, conns, b.most)
	}
	if b.inUse() < b.most/2 {
		t.Errorf("%d bytes are reserved of %d", b.inUse(), b.most)
	}
	close(read)
	for _, c := range clients {
		c.Conn.Close()
	}
	await.Until(t, "what was reserved is released", func() bool { return b.inUse() == 0 })
}

// What was read is not kept, however many streams go on.
func TestMemory_WhatWasReadIsNotKept(t *testing.T) {
	const streams, size = 60, 300 << 10
	held := make(chan *Stream, streams)
	goOn := make(chan bool)
	f := startServer(t, handler{serve: func(s *Stream) {
		buf := make([]byte, 1000) // less than a frame
		for got := 0; got < size; {
			n, err := s.Read(buf)
			if err != nil {
				t.Error(err)
				return
			}
			got += n
		}
		held <- s
		<-goOn
	}})
	c := f.dial()
	for i := range streams {
		id := uint32(2*i + 1)
		c.begin(id, post("/")...)
		for left, room := size, initialWindow; left > 0; {
			for ; room >= 1<<10 && left > 0; left, room = left-1<<10, room-1<<10 {
				c.must(0, c.WriteData(id, false, make([]byte, 1<<10)))
			}
			c.until("window", func(f http2.Frame) bool {
				u, ok := f.(*http2.WindowUpdateFrame)
				if ok && u.StreamID == id {
					room += int(u.Increment)
				}
				return ok
			})
		}
	}
	kept := 0
	for range streams {
		s := await.Value(t, held, "the body of a stream")
		s.conn.mu.Lock()
		kept += cap(s.body)
		s.conn.mu.Unlock()
	}
	close(goOn)
	if kept > streams*maxFrame {
		t.Errorf("%d bytes are kept by %d streams", kept, streams)
	}
}

// failed reports whether the stream or its connection has failed.
func failed(s *Stream) bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.err != nil
}

// Interim responses to a client that does not read make the upstream wait.
func TestMemory_InterimResponsesThatNobodyReads(t *testing.T) {
	var f http1.Fields
	f.Add("Link", strings.Repeat("x", 20_000))
	ended := make(chan bool)
	srv := startServer(t, handler{serve: func(s *Stream) {
		for i := 0; i < 10_000 && !failed(s); i++ {
			s.Informational(103, &f)
		}
		ended <- true
	}}, func(s *Server) { s.Timeouts.Write = 300 * time.Millisecond })
	c := srv.dial()
	const streams = 20
	before := heap()
	for i := range uint32(streams) {
		c.ask(2*i+1, get("/")...)
	}
	for range streams { // each ends because its client reads nothing for Timeouts.Write
		await.Value(t, ended, "a handler that gives up")
	}
	if grown := heap() - before; grown > 2<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}

// The last byte of a head begins the request at once if it comes alone, also on a connection that is no
// plain socket.
func TestInput_TheLastByteAlone(t *testing.T) {
	sockettest.OverBoth(t, func(tb testing.TB) {
		s := &Server{Handler: handler{serve: func(s *Stream) { say(s, 200, "ok") }}}
		l := sockettest.Listen(tb)
		var all sync.WaitGroup
		defer all.Wait()
		all.Go(func() {
			nc, err := l.Accept()
			if err == nil {
				s.ServeConn(struct{ net.Conn }{sockettest.ServerSide(tb, nc)}, nil) // behind a PROXY protocol, for example
			}
		})
		raw, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			tb.Fatal(err)
		}
		nc := sockettest.ClientSide(tb, raw)
		defer nc.Close()
		c := newClient(t, nc)
		read := c.Framer
		said := new(collected)
		c.Framer = http2.NewFramer(said, nil)
		c.must(0, c.WritePing(false, [8]byte{1}))
		c.ask(1, get("/")...)
		c.Framer = read
		c.must(nc.Write(said.b[:len(said.b)-1]))
		c.until("PING", func(f http2.Frame) bool { return f.Header().Type == http2.FramePing }) // all has been read
		c.must(nc.Write(said.b[len(said.b)-1:]))
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
		c.wants(1, "200")
		nc.Close()
	})
}

// The window of a stream grows up to that of the connection while its body is read as fast as it
// arrives, and not if it is not read.
func TestFlow_TheWindowGrowsWithTheReader(t *testing.T) {
	read, stalled := make(chan bool), make(chan bool)
	f := startServer(t, handler{serve: func(s *Stream) {
		if s.Path == "/stalled" {
			<-stalled
		}
		_, _ = io.Copy(io.Discard, s)
		close(read)
	}})
	defer close(stalled)
	c := f.dial()
	c.begin(1, post("/stalled")...)
	c.begin(3, post("/")...)
	largest, room, all, sent := 0, initialWindow, initialWindow, 0
	for sent < 8<<20 {
		for ; min(room, all) >= maxFrame; room, all = room-maxFrame, all-maxFrame {
			c.must(0, c.WriteData(3, false, make([]byte, maxFrame)))
			sent += maxFrame
		}
		c.until("window", func(f http2.Frame) bool {
			u, ok := f.(*http2.WindowUpdateFrame)
			if ok && u.StreamID == 1 {
				t.Errorf("a stream that is not read gets %d bytes", u.Increment)
			}
			switch {
			case !ok:
			case u.StreamID == 0:
				all += int(u.Increment)
			case u.StreamID == 3:
				room += int(u.Increment)
				largest = max(largest, int(u.Increment))
			}
			return ok
		})
	}
	c.last(3, "")
	await.Value(t, read, "the end of the body")
	if largest < receiveWindow/4 {
		t.Errorf("the largest increment is %d", largest)
	}
}
