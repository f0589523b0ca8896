package http2

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A model is what a client knows about its connection: the frames that the server may send
// in this state.
type model struct {
	testing.TB
	window   int64            // of the connection
	initial  int64            // of new streams
	streams  map[uint32]int64 // windows of the streams that were opened
	begun    map[uint32]bool  // a final response has begun
	ended    map[uint32]bool  // nothing more may come
	settings []int64          // initial windows that are not acknowledged
	pings    int
}

// receives checks one frame of the server.
func (m *model) receives(f http2.Frame) {
	id := f.Header().StreamID
	_, opened := m.streams[id]
	if id != 0 && (!opened || m.ended[id]) && f.Header().Type != http2.FrameWindowUpdate && f.Header().Type != http2.FrameRSTStream {
		m.Errorf("%v for a stream that was not opened, or has ended", f)
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return
		}
		if len(m.settings) == 0 {
			m.Fatal("an acknowledgement of no settings")
		}
		for id := range m.streams {
			m.streams[id] += m.settings[0] - m.initial
		}
		m.initial, m.settings = m.settings[0], m.settings[1:]
	case *http2.PingFrame:
		if m.pings--; m.pings < 0 || !f.IsAck() {
			m.Error("an acknowledgement of no PING")
		}
	case *http2.MetaHeadersFrame:
		if status := f.PseudoValue("status"); m.begun[id] && status != "" {
			m.Errorf("a second response on %d: %s", id, status)
		} else if status != "100" {
			m.begun[id] = true
		}
		m.ended[id] = f.StreamEnded()
	case *http2.DataFrame:
		m.window -= int64(f.Length)
		m.streams[id] -= int64(f.Length)
		if f.Length > 0 && (m.window < 0 || m.streams[id] < 0) || !m.begun[id] {
			m.Errorf("data on %d beyond a window, or before a response: %d, %d", id, m.window, m.streams[id])
		}
		m.ended[id] = f.StreamEnded()
	case *http2.RSTStreamFrame:
		m.ended[id] = true
	}
}

// A script writes frames that bytes choose. What it sends is known to the model before the
// server can answer.
type script struct {
	steps []byte
	w     *http2.Framer
	block bytes.Buffer
	enc   *hpack.Encoder
	last  uint32
	tell  chan func(m *model)
}

func (s *script) next() byte {
	if len(s.steps) == 0 {
		return 0
	}
	b := s.steps[0]
	s.steps = s.steps[1:]
	return b
}

// stream chooses one of the streams that were opened last.
func (s *script) stream() uint32 {
	id := s.last - 2*uint32(s.next()%8)
	if id > s.last || id == 0 {
		return s.last
	}
	return id
}

func (s *script) open(flags http2.Flags) error {
	s.last += 2
	id := s.last
	s.tell <- func(m *model) { m.streams[id] = m.initial }
	s.block.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/"}, {":authority", "a"}, {"x-n", string(rune('a' + s.next()%26))}} {
		_ = s.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	block, cut := s.block.Bytes(), int(s.next())%(s.block.Len()+1)
	if cut == s.block.Len() {
		return s.w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: flags != 0})
	}
	if err := s.w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:cut], EndStream: flags != 0}); err != nil {
		return err
	}
	return s.w.WriteContinuation(id, true, block[cut:])
}

// step writes the next frame. It returns false at the end.
func (s *script) step() bool {
	if len(s.steps) == 0 {
		return false
	}
	var err error
	switch op := s.next() % 12; op {
	case 0:
		err = s.open(http2.FlagHeadersEndStream)
	case 1:
		err = s.open(0)
	case 2, 3:
		err = s.w.WriteData(s.stream(), op == 3, make([]byte, 64*int(s.next())))
	case 4:
		err = s.w.WriteRSTStream(s.stream(), http2.ErrCodeCancel)
	case 5:
		id, n := s.stream(), uint32(s.next())+1
		s.tell <- func(m *model) { m.streams[id] += int64(n) }
		err = s.w.WriteWindowUpdate(id, n)
	case 6:
		n := 256 * (uint32(s.next()) + 1)
		s.tell <- func(m *model) { m.window += int64(n) }
		err = s.w.WriteWindowUpdate(0, n)
	case 7:
		v := 64 * uint32(s.next())
		s.tell <- func(m *model) { m.settings = append(m.settings, int64(v)) }
		err = s.w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: v})
	case 8:
		s.tell <- func(m *model) { m.pings++ }
		err = s.w.WritePing(false, [8]byte{s.next()})
	case 9:
		err = s.w.WritePriority(s.stream(), http2.PriorityParam{StreamDep: s.stream(), Weight: s.next()})
	case 10:
		err = s.w.WriteDataPadded(s.stream(), false, make([]byte, s.next()), make([]byte, s.next()))
	case 11: // any frame at all
		kind, flags, id := http2.FrameType(s.next()%12), http2.Flags(s.next()), s.stream()
		n := int(s.next()) % 20
		n = min(n, len(s.steps))
		if kind == http2.FrameSettings || kind == http2.FramePing || kind == http2.FrameWindowUpdate || kind == http2.FrameHeaders {
			return true // the model would have to know them
		}
		err = s.w.WriteRawFrame(kind, flags, id, s.steps[:n])
	}
	return err == nil
}

// FuzzFrames sends any sequence of frames. Whatever it is, the server sends only what it may,
// and the connection ends with all its handlers.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{1, 2, 0, 200, 2, 0, 50, 3, 0, 9, 8, 1})
	f.Add([]byte{7, 1, 0, 1, 1, 2, 2, 0, 255, 5, 0, 200, 6, 9, 7, 200, 3, 0, 1, 4, 0})
	f.Add([]byte{1, 2, 3, 1, 2, 3, 10, 1, 50, 60, 11, 0, 8, 0, 5, 1, 2, 3, 4, 5, 9, 0, 0, 1})
	f.Add(bytes.Repeat([]byte{0, 1, 30, 4, 0}, 50))
	server := &Server{Handler: handler{begin: func(s *Stream) bool {
		if n, _ := s.Fields.Lookup("X-N"); s.Err == nil && n < "t" {
			return true
		}
		say(s, 429, "no")
		return false
	}, serve: echo}, Timeouts: http1.Timeouts{Write: enough}}
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 1000 {
			return
		}
		l := sockettest.Listen(t)
		served := make(chan bool)
		go func() {
			defer close(served)
			if c, err := l.Accept(); err == nil {
				server.ServeConn(c, nil)
			}
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		play(t, c.(*net.TCPConn), steps)
		select {
		case <-served:
		case <-time.After(enough):
			buf := make([]byte, 1<<20)
			t.Fatalf("the connection or a handler does not end\n%s", buf[:runtime.Stack(buf, true)])
		}
	})
	_ = server.Shutdown(context.Background())
}

// play writes what the steps choose, and checks what the server sends.
func play(t *testing.T, c *net.TCPConn, steps []byte) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(enough))
	m := &model{TB: t, window: initialWindow, initial: initialWindow, streams: map[uint32]int64{}, begun: map[uint32]bool{}, ended: map[uint32]bool{}}
	m.settings = []int64{initialWindow}
	s := &script{steps: steps, w: http2.NewFramer(c, nil), last: 1, tell: make(chan func(*model), 2000)}
	s.enc = hpack.NewEncoder(&s.block)
	s.w.AllowIllegalWrites = true
	s.last = ^uint32(0) // the first one is 1
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = s.w.WriteSettings()
	written := make(chan bool)
	go func() {
		defer close(written)
		for s.step() {
		}
		_ = c.CloseWrite()
	}()
	in := http2.NewFramer(nil, c)
	in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := in.ReadFrame()
		for len(s.tell) > 0 {
			(<-s.tell)(m)
		}
		if err != nil {
			break
		}
		m.receives(f)
	}
	c.Close()
	<-written
}
