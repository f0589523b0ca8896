package http2

import (
	"math"

	"golang.org/x/net/http2"
)

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
