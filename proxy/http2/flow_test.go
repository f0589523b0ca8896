package http2

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
)

func TestFlow_BodiesOfAnySizeGoBothWays(t *testing.T) {
	f := startServer(t, handler{serve: echo})
	for _, size := range []int{0, 1, stageSize, stageSize + 1, maxFrame, outputSize, 1 << 20, 3 << 20} {
		c := f.dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		c.must(0, c.WriteWindowUpdate(0, 1<<30))
		want := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
		c.begin(1, post("/")...)
		sent := make(chan error, 1)
		windows := make(chan [2]int, 1000) // what is added for the connection and for the stream
		go func() {
			left, all, room := want, initialWindow, initialWindow
			for len(left) > 0 {
				for min(all, room) < min(len(left), maxFrame) {
					more := <-windows
					all, room = all+more[0], room+more[1]
				}
				piece := left[:min(len(left), maxFrame)]
				if err := c.WriteData(1, false, piece); err != nil {
					sent <- err
					return
				}
				left, all, room = left[len(piece):], all-len(piece), room-len(piece)
			}
			sent <- c.WriteData(1, true, nil)
		}()
		c.until("end of the stream", func(f http2.Frame) bool {
			if u, ok := f.(*http2.WindowUpdateFrame); ok {
				var more [2]int
				more[u.StreamID] = int(u.Increment)
				windows <- more
			}
			return endsStream(f, 1)
		})
		if err := await.Value(t, sent, "the end of sending"); err != nil || !bytes.Equal(c.body[1], want) {
			t.Errorf("%d bytes: %d came back, %v", size, len(c.body[1]), err)
		}
	}
}

// long responds with a body of so many bytes.
func long(n int) handler {
	return handler{serve: func(s *Stream) {
		if s.Begin(200, new(http1.Fields), int64(n)) != nil {
			return
		}
		for piece := bytes.Repeat([]byte("x"), 32<<10); n > 0; n -= len(piece) {
			if _, err := s.Write(piece[:min(n, len(piece))]); err != nil {
				return
			}
		}
		_ = s.End(nil)
	}}
}

// A window may become negative (RFC 9113 section 6.9.2), and is obeyed all the same.
func TestFlow_WindowsShrinkAndGrow(t *testing.T) {
	c := startServer(t, long(100)).dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	c.ask(1, get("/")...)
	has := func(n int) {
		t.Helper()
		for len(c.body[1]) < n {
			c.until("data", func(f http2.Frame) bool { return f.Header().Type == http2.FrameData })
		}
		if len(c.body[1]) != n {
			t.Fatalf("got %d bytes; want %d", len(c.body[1]), n)
		}
	}
	has(10)
	c.must(0, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 5})) // now it is -5
	c.must(0, c.WriteWindowUpdate(1, 5))
	c.must(0, c.WritePing(false, [8]byte{1}))
	c.until("PING", func(f http2.Frame) bool { p, ok := f.(*http2.PingFrame); return ok && p.IsAck() })
	has(10)
	c.must(0, c.WriteWindowUpdate(1, 3))
	has(13)
	c.must(0, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}))
	has(100)
}

func TestFlow_WindowsDoNotOverflow(t *testing.T) {
	f := startServer(t, long(1<<20))
	c := f.dial()
	c.must(0, c.WriteWindowUpdate(0, 1<<31-1))
	c.wants(0, "GOAWAY FLOW_CONTROL_ERROR")
	c = f.dial()
	c.ask(1, get("/")...)
	for range 2 {
		c.must(0, c.WriteWindowUpdate(1, 1<<31-1))
	}
	for got := ""; got != "FLOW_CONTROL_ERROR"; {
		got = c.status(1) // a response may have begun
	}
	c = f.dial()
	c.ask(1, get("/")...)
	c.must(0, c.WriteWindowUpdate(1, 1<<31-1-initialWindow))
	c.must(0, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	c.wants(0, "GOAWAY FLOW_CONTROL_ERROR")
	c = f.dial()
	c.must(0, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}))
	c.wants(0, "GOAWAY FLOW_CONTROL_ERROR")
}

// Padding counts for both windows (RFC 9113 section 6.9.1), and nobody reads it: it comes back at once, or an upload would end
// up without a window.
func TestFlow_PaddingIsReturned(t *testing.T) {
	c := startServer(t, handler{serve: echo}).dial()
	c.begin(1, post("/")...)
	const size = 1 + len("x") + 255
	frames, room := 2*initialWindow/size, initialWindow
	for range frames {
		for room < size {
			c.until("window of the stream", func(f http2.Frame) bool {
				u, ok := f.(*http2.WindowUpdateFrame)
				if ok && u.StreamID == 1 {
					room += int(u.Increment)
				}
				return ok && u.StreamID == 1
			})
		}
		c.must(0, c.WriteDataPadded(1, false, []byte("x"), make([]byte, 255)))
		room -= size
	}
	c.last(1, "")
	if got := c.ends(1); len(got) != frames {
		t.Errorf("%d bytes came back; want %d", len(got), frames)
	}
}

// A client that sends more than it may loses its stream or its connection, so that no more
// than the window is ever kept.
func TestFlow_TheClientsWindowIsABound(t *testing.T) {
	wait := make(chan bool)
	f := startServer(t, handler{serve: func(*Stream) { <-wait }})
	defer close(wait)
	c := f.dial()
	c.begin(1, post("/")...)
	fill := func(id uint32) {
		for left := initialWindow; left > 0; left -= maxFrame {
			c.must(0, c.WriteData(id, false, make([]byte, min(left, maxFrame))))
		}
	}
	fill(1)
	c.data(1, "x")
	c.wants(1, "FLOW_CONTROL_ERROR")
	for id := uint32(3); id <= 2*receiveWindow/initialWindow+1; id += 2 {
		c.begin(id, post("/")...)
		fill(id)
	}
	c.begin(99, post("/")...)
	fill(99)
	c.wants(0, "GOAWAY FLOW_CONTROL_ERROR")
}

// A client that gives no window for a stream loses it, and its connection goes on.
func TestFlow_AStalledStreamIsReset(t *testing.T) {
	f := startServer(t, long(1<<20), func(s *Server) { s.Timeouts.Write = time.Second })
	c := f.dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	c.ask(1, get("/")...)
	c.wants(1, "200")
	c.wants(1, "CANCEL")
	c.must(0, c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	c.must(0, c.WriteWindowUpdate(0, 1<<20))
	c.ask(3, get("/")...)
	c.wants(3, "200")
	if got := c.ends(3); len(got) != 1<<20 {
		t.Errorf("another stream got %d bytes", len(got))
	}
}

// A client that reads nothing at all loses its connection.
func TestFlow_AClientThatDoesNotReadIsCutOff(t *testing.T) {
	ended := make(chan error, 1)
	f := startServer(t, handler{serve: func(s *Stream) {
		_ = s.Begin(200, new(http1.Fields), -1)
		for {
			if _, err := s.Write(make([]byte, 32<<10)); err != nil {
				ended <- err
				return
			}
		}
	}}, func(s *Server) { s.Timeouts.Write = 100 * time.Millisecond })
	c := f.dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	c.must(0, c.WriteWindowUpdate(0, 1<<31-1-initialWindow))
	c.ask(1, get("/")...)
	if err := await.Value(t, ended, "the end of writing"); err == nil {
		t.Error("the handler could write for ever")
	}
}

func TestBody_DeadlineAndStop(t *testing.T) {
	failed := make(chan error, 1)
	f := startServer(t, handler{serve: func(s *Stream) {
		buf := make([]byte, 10)
		if n, err := s.Read(buf); n != 4 || err != nil {
			t.Errorf("read %d, %v", n, err)
		}
		_ = s.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := s.Read(buf)
		failed <- err
		_ = s.SetReadDeadline(time.Time{})
		go func() { _ = s.SetReadDeadline(time.Unix(1, 0)) }()
		_, err = s.Read(buf)
		failed <- err
		say(s, 408, "late")
	}})
	c := f.dial()
	c.begin(1, post("/")...)
	c.data(1, "half")
	for range 2 {
		if err := await.Value(t, failed, "an error"); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v; want the deadline", err)
		}
	}
	c.wants(1, "408")
	c.wants(1, "NO_ERROR") // the rest of the body is not needed
}

// 100 Continue is sent when the handler reads the body, and only then.
func TestBody_ExpectContinue(t *testing.T) {
	f := startServer(t, handler{serve: func(s *Stream) {
		if s.Path == "/refused" {
			say(s, 429, "no")
			return
		}
		echo(s)
	}})
	c := f.dial()
	c.begin(1, post("/", "expect", "100-continue")...)
	c.until("100", func(f http2.Frame) bool { return outcome(f, 1) == "100" })
	c.last(1, "hello")
	if got := c.ends(1); got != "hello" {
		t.Errorf("got %q", got)
	}
	c.begin(3, post("/refused", "expect", "100-continue")...)
	c.until("answer", func(f http2.Frame) bool {
		if o := outcome(f, 3); o != "" && o != "429" {
			t.Errorf("%s; want 429 at once", o)
		}
		return outcome(f, 3) == "429"
	})
}

// A handler whose client has reset the stream learns of it, by its context and by reading.
func TestStream_ResetAbortsItsHandler(t *testing.T) {
	began, ended := make(chan bool), make(chan error, 3)
	f := startServer(t, handler{serve: func(s *Stream) {
		began <- true
		<-s.Context().Done()
		ended <- s.Context().Err()
		_, err := s.Read(make([]byte, 1))
		ended <- err
		err = s.Begin(200, new(http1.Fields), -1)
		if err == nil {
			err = s.Flush()
		}
		if !s.WasReset() {
			err = nil
		}
		ended <- err
	}})
	c := f.dial()
	c.begin(1, post("/")...)
	await.Value(t, began, "the handler")
	c.must(0, c.WriteRSTStream(1, http2.ErrCodeCancel))
	for range 3 {
		if err := await.Value(t, ended, "an error"); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%v; want an error", err)
		}
	}
	c.Close()
}

// An aborter is aborted once its stream has failed, also if that was before.
type aborter chan bool

func (a aborter) Abort() {
	select {
	case a <- true:
	default:
	}
}

func TestStream_AbortWith(t *testing.T) {
	began, early, late := make(chan bool), make(aborter, 1), make(aborter, 1)
	done := make(chan bool)
	f := startServer(t, handler{serve: func(s *Stream) {
		s.AbortWith(early)
		began <- true
		<-early
		s.AbortWith(nil)
		s.AbortWith(late)
		<-late
		s.AbortWith(nil)
		close(done)
	}})
	c := f.dial()
	c.begin(1, post("/")...)
	await.Value(t, began, "the handler")
	c.Close() // the connection ends
	await.Value(t, done, "both aborts")
}

// Heads of any length are sent, in several frames if need be.
func TestResponse_LongHead(t *testing.T) {
	value := strings.Repeat("v", 40_000)
	c := startServer(t, handler{serve: func(s *Stream) {
		s.Start(200)
		s.Add("X-Long", value)
		_ = s.Send([]byte("body"))
	}}).dial()
	c.ask(1, get("/")...)
	c.until("head", func(f http2.Frame) bool {
		h, ok := f.(*http2.MetaHeadersFrame)
		if ok && (len(h.Fields) != 4 || h.Fields[1].Value != value) {
			t.Errorf("got %d fields", len(h.Fields))
		}
		return ok
	})
	if got := c.ends(1); got != "body" {
		t.Errorf("got %q", got)
	}
}

// A client whose uploads are answered early sends on until it knows, on as many streams as it
// likes, and is not taken for an attacker.
func TestBody_EarlyAnswersToManyUploads(t *testing.T) {
	f := startServer(t, refusing(), limitResets)
	c := f.dial()
	const uploads, late = 50, 100 // frames that were on their way
	id := uint32(1)
	for range 5 {
		for i := range uint32(uploads) {
			c.begin(id+2*i, post("/")...)
		}
		for range late {
			for i := range uint32(uploads) {
				c.data(id+2*i, "more")
			}
		}
		id += 2 * uploads
		c.ask(id, get("/")...)
		c.wants(id, "200")
		id += 2
	}
}
