package http2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/internal/socket"
)

const (
	// maxFrame is the maximum size of a received frame. It is the minimum that every
	// implementation must accept (RFC 9113 section 4.2).
	maxFrame = 16 << 10
	// receiveWindow is the flow-control window for the request bodies of a connection, and
	// the largest one of a stream.
	receiveWindow = 1 << 20
	// initialWindow is the size of all windows at first (RFC 9113 section 6.9.2). That of a
	// stream grows while its body is read as fast as it arrives.
	initialWindow = 1<<16 - 1
	// keptFramer is the largest frame after which a connection keeps its Framer, which has
	// a buffer of that size.
	keptFramer = 2 << 10
)

// A conn is one connection. One goroutine reads it. Each request whose handler waits has
// a goroutine of its own. Whoever has added frames to the output sends what all have
// added, unless another goroutine is about to do so.
type conn struct {
	server *Server
	net    net.Conn
	peer   netip.AddrPort
	tls    bool
	in     input
	framer *http2.Framer // reads from in, and writes to out under mu; replaced under mu

	// What follows is used only by the goroutine that reads.
	decoder      *hpack.Decoder
	block        headerBlock
	trailer      http1.Fields // of the block
	pending      []*Stream    // requests whose handlers have not begun, in order of arrival
	pendingSince time.Time    // since when they are held back; zero if they are not
	deadline     time.Time    // for reading
	waitBegan    time.Time    // when the current wait for bytes began
	headBegan    time.Time    // when the preface or the header block began
	emptyData    int          // DATA frames without content since the last one that had some
	pinged       time.Time    // when an unanswered PING was sent; zero if there is none

	interrupted atomic.Bool  // the read was interrupted because something has changed
	inUse       atomic.Int32 // streams that have not been released

	mu            sync.Mutex // guards what follows
	out           output
	streams       map[uint32]*Stream // streams that are not closed
	lastID        uint32             // the largest number of a stream of the client
	running       int                // streams whose handlers have not returned
	sendWindow    int64
	peerWindow    int64         // initial window of streams
	peerFrame     int           // maximum size of a frame that is sent
	receiveWindow int64         // what the client may send
	returned      int64         // bytes of bodies that were consumed and not yet added to receiveWindow
	resetByUs     recentStreams // streams that we have reset
	endedByClient recentStreams // streams that the client has ended or reset
	requests      int           // that have ended
	resets        int           // of these, how many were reset by the client or because of an error of it
	ready         bool
	draining      bool
	drainingSince time.Time
	refuses       bool  // new streams are refused, because the client had time to learn of the GOAWAY
	err           error // why the connection has ended
	idleSince     time.Time
	allEnded      sync.Cond // running has become 0
	unread        unreadBytes

	counter ResetCounter // nil if resets are not limited
}

func newConn(s *Server, nc net.Conn, received []byte) *conn {
	c := &conn{
		server: s, net: nc, streams: map[uint32]*Stream{}, sendWindow: initialWindow, peerWindow: initialWindow,
		peerFrame: maxFrame, receiveWindow: receiveWindow, headBegan: time.Now(),
	}
	c.allEnded.L, c.unread.fewer.L = &c.mu, &c.mu
	_, c.tls = c.net.(*tls.Conn)
	c.peer = http1.PeerOf(c.net)
	c.out.init(c)
	c.in.init(c, received)
	c.decoder = hpack.NewDecoder(4096, c.onField)
	c.decoder.SetMaxStringLength(2 * s.MaxHeader)
	c.newFramer()
	if s.NewResetCounter != nil {
		c.counter = s.NewResetCounter(nc)
	}
	return c
}

func (c *conn) newFramer() {
	f := http2.NewFramer(&c.out, &c.in)
	f.SetReuseFrames()
	f.SetMaxReadFrameSize(maxFrame)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.framer = f
}

// serve serves the connection to its end.
func (c *conn) serve() {
	err := c.readPreface()
	if err == nil {
		err = c.readFrames()
	}
	c.mu.Lock()
	c.endLocked(err)
	c.mu.Unlock()
	c.flushAll()
	c.linger()
	_ = c.net.Close()
	c.dropPending()
	c.mu.Lock()
	for c.running > 0 {
		c.allEnded.Wait()
	}
	c.unread.add(c, -c.unread.bytes)
	c.mu.Unlock()
	c.in.release()
	if report := c.server.OnError; report != nil && err != nil && !isOrderly(err) {
		report(err)
	}
}

// errEnded reports that the connection has ended in an orderly way.
var errEnded = errors.New("connection ended")

func isOrderly(err error) bool {
	return errors.Is(err, errEnded) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed)
}

// readPreface sends the settings and reads the connection preface (RFC 9113 section 3.4).
func (c *conn) readPreface() error {
	c.mu.Lock()
	_ = c.framer.WriteSettings(
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.server.MaxStreams)},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.server.MaxHeader)},
		http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1},
		http2.Setting{ID: http2.SettingNoRFC7540Priorities, Val: 1},
	)
	_ = c.framer.WriteWindowUpdate(0, receiveWindow-initialWindow)
	c.mu.Unlock()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(&c.in, preface); err != nil {
		return err
	}
	if !bytes.Equal(preface, []byte(http2.ClientPreface)) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	f, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	settings, ok := f.(*http2.SettingsFrame)
	if !ok || settings.IsAck() {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.mu.Lock()
	c.ready, c.idleSince = true, time.Now()
	if c.draining { // Shutdown was called meanwhile
		c.draining = false
		c.drainLocked()
	}
	c.mu.Unlock()
	return c.onSettings(settings)
}

// readFrames reads frames until the connection ends.
func (c *conn) readFrames() error {
	for {
		if c.in.isEmpty() {
			if err := c.in.fill(); err != nil {
				return err
			}
		}
		err := c.readFrame()
		var of http2.StreamError
		switch {
		case err == nil:
		case errors.As(err, &of):
			if err := c.onStreamError(of); err != nil {
				return err
			}
		case errors.Is(err, http2.ErrFrameTooLarge):
			return http2.ConnectionError(http2.ErrCodeFrameSize)
		default:
			return err
		}
	}
}

// readFrame reads a frame and processes it.
func (c *conn) readFrame() error {
	h, err := c.framer.ReadFrameHeader()
	switch {
	case err != nil:
		return err
	case h.Type == http2.FrameData && !h.Flags.Has(http2.FlagDataPadded):
		return c.readData(h)
	}
	f, err := c.framer.ReadFrameForHeader(h)
	if err == nil {
		err = c.onFrame(f)
	}
	if h.Length > keptFramer && !c.block.open {
		c.newFramer()
	}
	return err
}

// endLocked ends the connection because of err: it announces that by GOAWAY, and aborts
// all streams.
func (c *conn) endLocked(err error) {
	if c.err != nil {
		return
	}
	code := http2.ErrCodeNo
	var fault http2.ConnectionError
	if errors.As(err, &fault) {
		code = http2.ErrCode(fault)
	}
	if !errors.Is(err, io.EOF) { // otherwise nobody reads it
		_ = c.framer.WriteGoAway(c.lastID, code, nil)
	}
	c.abortLocked(err)
}

// abortLocked aborts all streams. Nothing more is added to the output. The functions that
// it calls for that do not call back.
func (c *conn) abortLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	for _, s := range c.streams {
		s.failLocked(err)
	}
	clear(c.streams)
	c.out.sent.Broadcast()
	c.unread.fewer.Broadcast()
}

// linger reads on for a short time, because the kernel would discard what has been sent
// if the client's bytes were not read.
func (c *conn) linger() {
	if socket.CloseWrite(c.net) != nil {
		return
	}
	_ = c.net.SetReadDeadline(time.Now().Add(drainWait))
	_, _ = io.CopyN(io.Discard, c.net, receiveWindow)
}

// isIdle reports whether there is no request.
func (c *conn) isIdle() bool { return c.inUse.Load() == 0 }

// maxSettings is the maximum number of settings in a frame.
const maxSettings = 100

// onFrame processes a frame. A StreamError resets its stream; any other error ends the
// connection. Priorities are accepted and not acted on (RFC 9218 section 2.1).
func (c *conn) onFrame(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.onData(f)
	case *http2.HeadersFrame:
		return c.onHeaders(f)
	case *http2.ContinuationFrame:
		return c.onContinuation(f)
	case *http2.RSTStreamFrame:
		return c.onReset(f)
	case *http2.WindowUpdateFrame:
		return c.onWindowUpdate(f)
	case *http2.SettingsFrame:
		return c.onSettings(f)
	case *http2.PingFrame:
		return c.onPing(f)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

// onStreamError resets a stream because of an error of the client.
func (c *conn) onStreamError(of http2.StreamError) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[of.StreamID]; s != nil {
		s.wasReset = true
		c.resetLocked(s, of.Code, of)
		return nil
	}
	c.resets++ // costs as much as a reset request
	if c.counter != nil && c.resets > c.requests/2 && c.resets > maxErrors {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return c.framer.WriteRSTStream(of.StreamID, of.Code)
}

// maxErrors is the number of frames for streams that are not open that a client may send,
// as long as they are not more than half of all its requests.
const maxErrors = 1000

func (c *conn) onReset(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID > c.lastID {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if s := c.streams[f.StreamID]; s != nil {
		s.wasReset = true
		c.closeLocked(s)
		c.endedByClient.add(f.StreamID)
		s.failLocked(errReset)
	}
	return nil
}

func (c *conn) onPing(f *http2.PingFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.framer.WritePing(true, f.Data)
}

func (c *conn) onSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if f.NumSettings() > maxSettings {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := f.ForeachSetting(c.onSettingLocked); err != nil {
		return err
	}
	return c.framer.WriteSettingsAck()
}

func (c *conn) onSettingLocked(s http2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case http2.SettingMaxFrameSize:
		c.peerFrame = min(int(s.Val), maxFrame)
	case http2.SettingInitialWindowSize:
		more := int64(s.Val) - c.peerWindow
		c.peerWindow = int64(s.Val)
		for _, of := range c.streams {
			if of.sendWindow += more; of.sendWindow > math.MaxInt32 {
				return http2.ConnectionError(http2.ErrCodeFlowControl)
			}
		}
		c.wakeSendersLocked()
	}
	return nil
}

func (c *conn) onWindowUpdate(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		if c.sendWindow += int64(f.Increment); c.sendWindow > math.MaxInt32 {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.wakeSendersLocked()
		return nil
	}
	s := c.streams[f.StreamID]
	switch {
	case s == nil && f.StreamID > c.lastID:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case s == nil:
		return nil
	}
	if s.sendWindow += int64(f.Increment); s.sendWindow > math.MaxInt32 {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	s.canSend.Signal()
	return nil
}
