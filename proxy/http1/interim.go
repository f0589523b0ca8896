package http1

import (
	"os"
	"time"
)

const (
	// maxInterimBytes bounds the heads of all interim responses to one request.
	maxInterimBytes = 64 << 20
	// maxInterimTimeouts is the maximum wait for a final response after the first interim
	// one, as a multiple of Client.ResponseTimeout.
	maxInterimTimeouts = 10
)

// An interimState counts the 1xx responses to one request (RFC 9110 section 15.2).
type interimState struct {
	relayed, bytes int
	since          time.Duration // when the first one arrived after the request was sent; 0 for none
}

// relayInterim forwards a 1xx response, except 100, and prepares for the next head. It
// drops those beyond Limits.Interim, which an upstream sends to keep a connection alive.
func (c *Call) relayInterim() error {
	if c.interim.bytes += c.in.r; c.interim.bytes > maxInterimBytes {
		return ErrTooManyInterim
	}
	if c.Response.Status != 100 && c.interim.relayed < c.client.Limits.Interim {
		c.interim.relayed++
		switch {
		case c.Interim != nil:
			c.Interim(&c.Response)
		case c.x != nil:
			h := c.x.Interim(c.Response.Status)
			c.Response.Fields.StripHopByHop()
			h.AddFields(&c.Response.Fields)
			_ = c.x.SendInterim() // if it fails, the final response fails, too
		}
	}
	c.in.nextMessage()
	c.Response.Reset()
	return nil
}

// restartResponseTimeout gives the upstream more time after an interim response. While
// the request is being sent there is no deadline, and the upload sets it at its end.
func (c *Call) restartResponseTimeout() error {
	timeout := c.client.ResponseTimeout
	if timeout == 0 || !c.requestWritten && !c.upload.isSent() {
		return nil
	}
	now := c.client.now()
	if c.interim.since == 0 {
		c.interim.since = now
	}
	left := c.interim.since + maxInterimTimeouts*timeout - now
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	c.setReadDeadline(min(timeout, left))
	return nil
}
