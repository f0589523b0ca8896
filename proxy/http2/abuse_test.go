package http2

import (
	"bytes"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
)

// fewResets allows so many resets, as long as they are not more than half of all requests.
type fewResets int

func (fewResets) Completed()          {}
func (f fewResets) Reset() (most int) { return int(f) }

func limitResets(s *Server) {
	s.NewResetCounter = func(net.Conn) ResetCounter { return fewResets(100) }
}

// discard reads what the server sends until the connection ends.
func (c *client) discard() (ended chan bool) {
	ended = make(chan bool)
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, c.Conn)
	}()
	return ended
}

// floodedUntil writes until the connection has ended, and fails the test if it does not within
// so many rounds.
func (c *client) floodedUntil(rounds int, write func(i int) error) {
	c.Helper()
	ended := c.discard()
	for i := range rounds {
		if write(i) != nil {
			break
		}
	}
	await.Value(c.T, ended, "end of the connection")
}

// Requests that are reset cost no handler if that is seen in time, and end the connection.
func TestAbuse_RapidReset(t *testing.T) {
	var begun atomic.Int64
	f := startServer(t, handler{serve: func(s *Stream) { begun.Add(1); <-s.Context().Done() }}, limitResets)
	c := f.dial()
	block := c.encode(get("/")...)
	c.floodedUntil(100_000, func(i int) error {
		id := uint32(2*i + 1)
		if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true}); err != nil {
			return err
		}
		return c.WriteRSTStream(id, http2.ErrCodeCancel)
	})
	if n := begun.Load(); n > 2*100+100 {
		t.Errorf("%d handlers have begun", n)
	}
}

// A client that makes the server reset its streams costs as much as one that resets them
// (CVE-2025-8671).
func TestAbuse_MadeYouReset(t *testing.T) {
	for name, provoke := range map[string]func(c *client, id uint32) error{
		"window overflow": func(c *client, id uint32) error {
			_ = c.WriteWindowUpdate(id, 1<<31-1)
			return c.WriteWindowUpdate(id, 1<<31-1)
		},
		"window update of 0": func(c *client, id uint32) error {
			return c.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4))
		},
		"data after the end": func(c *client, id uint32) error { return c.WriteData(id, true, []byte("x")) },
		"priority of itself": func(c *client, id uint32) error {
			return c.WritePriority(id, http2.PriorityParam{StreamDep: id})
		},
		"a malformed request": func(*client, uint32) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var running, most atomic.Int64
			f := startServer(t, handler{begin: func(s *Stream) bool {
				if s.Err != nil {
					say(s, 400, "no")
				}
				return s.Err == nil
			}, serve: func(s *Stream) {
				n := running.Add(1)
				defer running.Add(-1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				<-s.Context().Done()
			}}, limitResets)
			c := f.dial()
			block := c.encode(get("/")...)
			if name == "a malformed request" {
				block = c.encode(get("/", "connection", "close")...)
			}
			c.floodedUntil(100_000, func(i int) error {
				id := uint32(2*i + 1)
				if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true}); err != nil {
					return err
				}
				return provoke(c, id)
			})
			if most.Load() > int64(f.MaxStreams) {
				t.Errorf("%d handlers at once; want at most %d", most.Load(), f.MaxStreams)
			}
		})
	}
}

// No more handlers run than streams are allowed, whatever a client opens and leaves.
func TestAbuse_StreamsBeyondTheLimitAreRefused(t *testing.T) {
	let := make(chan bool)
	f := startServer(t, handler{serve: func(s *Stream) { <-let; say(s, 200, "ok") }}, func(s *Server) { s.MaxStreams = 10 })
	c := f.dial()
	for i := range uint32(2000) {
		c.begin(2*i+1, post("/")...) // half open: no body follows
	}
	refused := 0
	for refused < 1990 {
		c.until("refusal", func(f http2.Frame) bool {
			r, ok := f.(*http2.RSTStreamFrame)
			if ok && r.ErrCode != http2.ErrCodeRefusedStream {
				t.Fatalf("reset with %v", r.ErrCode)
			}
			return ok
		})
		refused++
	}
	close(let)
	c.ask(4001, get("/")...)
	if got := c.status(4001); got != "200" && got != "REFUSED_STREAM" {
		t.Errorf("afterwards: %s", got)
	}
}

// Header blocks that never end, or are larger than is allowed, end the connection.
func TestAbuse_ContinuationFlood(t *testing.T) {
	for name, fragment := range map[string]int{"empty": 0, "small": 10, "large": maxFrame} {
		t.Run(name, func(t *testing.T) {
			f := startServer(t, refusing())
			c := f.dial()
			piece := []byte(strings.Repeat("\x00\x01a\x01b", fragment/5)) // literal fields
			c.must(0, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode(get("/")...)}))
			c.floodedUntil(100_000, func(int) error { return c.WriteContinuation(1, false, piece) })
		})
	}
}

// An HPACK bomb: one byte of a block is a large field of the dynamic table. It is refused,
// and uses no memory.
func TestAbuse_HPACKBomb(t *testing.T) {
	f := startServer(t, refusing())
	c := f.dial()
	c.ask(1, get("/", "x-bomb", strings.Repeat("b", 3000))...) // now in the table
	c.wants(1, "200")
	block := append(c.encode(get("/")...), strings.Repeat("\xbe", 10_000)...) // 30 MB
	before := heap()
	for id := uint32(3); id < 43; id += 2 {
		c.must(0, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true}))
		c.wants(id, "431")
	}
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	c.ask(43, get("/")...)
	c.wants(43, "200")
}

// heap is how much memory is in use: the least of several readings, because a server that
// still reads makes garbage while one is taken.
func heap() int64 {
	least := int64(math.MaxInt64)
	for range 5 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, int64(m.HeapAlloc))
	}
	return least
}

// Frames that only want an answer use no memory if the client does not read these.
func TestAbuse_FloodsOfFramesUseNoMemory(t *testing.T) {
	for name, write := range map[string]func(c *client) error{
		"PING": func(c *client) error { return c.WritePing(false, [8]byte{}) },
		"SETTINGS": func(c *client) error {
			return c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		},
		"empty DATA":    func(c *client) error { return c.WriteData(1, false, nil) },
		"PRIORITY":      func(c *client) error { return c.WritePriority(3, http2.PriorityParam{}) },
		"WINDOW_UPDATE": func(c *client) error { return c.WriteWindowUpdate(999, 1) },
		"unknown":       func(c *client) error { return c.WriteRawFrame(0x99, 0, 0, nil) },
		"refused":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			f := startServer(t, handler{begin: func(s *Stream) bool {
				if s.Path == "/open" {
					return true
				}
				say(s, 429, strings.Repeat("refused ", 100))
				return false
			}, serve: func(s *Stream) { <-s.Context().Done() }}, func(s *Server) { s.Timeouts.Write = 300 * time.Millisecond })
			c := f.dial()
			c.begin(1, post("/open")...)
			c.begin(999, post("/open")...)
			id := uint32(1001)
			if write == nil {
				block := c.encode(get("/")...)
				write = func(c *client) error {
					id += 2
					return c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
				}
			}
			before := heap()
			_ = c.SetWriteDeadline(time.Now().Add(3 * time.Second))
			for range 200_000 { // or until the server does not read any more, or has closed the connection
				if write(c) != nil {
					break
				}
			}
			if grown := heap() - before; grown > 4<<20 { // 150 MB if each refusal was kept
				t.Errorf("the heap has grown by %d bytes", grown)
			}
		})
	}
}

// A connection without requests uses little memory: it holds no buffers, and after frames
// that were large no longer those of the Framer.
func TestConn_AnIdleOneIsSmall(t *testing.T) {
	const conns, most = 200, 16 << 10
	f := startServer(t, handler{serve: echo})
	before := footprint()
	var all []*client
	for range conns {
		c := f.dial()
		c.ask(1, get("/", "cookie", strings.Repeat("c", 30_000))...) // in several frames
		c.wants(1, "200")
		c.begin(3, post("/", "user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "accept", "text/html",
			"accept-language", "en-US,en;q=0.5", "accept-encoding", "gzip, deflate, br, zstd", "cookie", "session="+strings.Repeat("c", 100))...)
		c.data(3, strings.Repeat("x", 10_000))
		c.last(3, "")
		if got := c.ends(3); len(got) != 10_000 {
			t.Fatalf("got %d bytes", len(got))
		}
		c.Framer, c.encoder, c.body, c.block = nil, nil, nil, bytes.Buffer{} // the client's own
		all = append(all, c)
	}
	each := (footprint() - before) / conns
	t.Logf("%d bytes a connection, with the client's socket", each)
	if each > most {
		t.Errorf("an idle connection uses %d bytes; want at most %d", each, most)
	}
	runtime.KeepAlive(all)
}

// footprint is the memory of the heap and of stacks.
func footprint() int64 {
	for range 5 { // pools need two, and stacks shrink by half each time
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// A handler that panics resets its stream, and no other.
func TestHandler_Panics(t *testing.T) {
	var mu sync.Mutex
	var seen []any
	f := startServer(t, handler{begin: func(s *Stream) bool {
		if s.Path == "/begin" {
			panic("begin")
		}
		return true
	}, serve: func(s *Stream) {
		if s.Path == "/serve" {
			_ = s.Begin(200, new(http1.Fields), -1)
			panic("serve")
		}
		say(s, 200, "ok")
	}}, func(s *Server) {
		s.OnPanic = func(v any) { mu.Lock(); seen = append(seen, v); mu.Unlock() }
	})
	c := f.dial()
	c.ask(1, get("/begin")...)
	c.wants(1, "INTERNAL_ERROR")
	c.ask(3, get("/serve")...)
	c.wants(3, "INTERNAL_ERROR")
	c.ask(5, get("/")...)
	c.wants(5, "200")
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 2 || seen[0] != "begin" || seen[1] != "serve" {
		t.Errorf("panics %v", seen)
	}
}

// Uploads that are answered early are reset, any number of them. What the client sends before it knows
// is ignored: the rest of the bodies, and trailers (RFC 9113 section 5.1).
func TestAbuse_WhatFollowsAResetIsIgnored(t *testing.T) {
	const streams = 250
	f := startServer(t, handler{begin: func(s *Stream) bool { say(s, 429, "no"); return false }}, func(s *Server) {
		s.MaxStreams = 4 * streams // those of all rounds may be open still
	})
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
