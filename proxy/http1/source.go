package http1

import "io"

// A Source is a request body that does not come from an Exchange.
type Source struct {
	Reader io.Reader
	Length int64 // -1 if unknown
	// Stop makes a pending read return, because the rest of the body is not needed. It
	// is called by another goroutine than the one that reads.
	Stop func()
	// Trailer, if it is set, adds the trailer fields to h. It is called after the whole
	// body has been read, and only if Length is unknown.
	Trailer func(h *Head)
	// Expects makes the call wait for 100 Continue before it reads the body. The caller
	// must add the Expect field.
	Expects bool
}

// A sourceReader connects a Source to a Body.
type sourceReader struct {
	Source
	in   input
	body Body
}

// fillBody implements bodyFiller.
func (*sourceReader) fillBody(b *Body) error {
	return b.fill()
}

// maxChunkFraming is how many bytes frame a chunk that is not longer than a buffer.
const maxChunkFraming = 8

// SetSource sets the body of a request that has no exchange. It must be called before
// Send. The caller must check the names of trailer fields; fields that cannot be sent
// are dropped.
func (c *Call) SetSource(s Source) {
	f := Framing{FixedLength, s.Length}
	if s.Length < 0 {
		f = Framing{UntilClose, -1}
	}
	g := &c.sourceReader
	g.Source = s
	g.in = input{from: s.Reader, pool: &c.client.buffers}
	if s.Length < 0 || s.Length > headBufferSize {
		g.in.bodyBuf = g.in.pool.getBody()
		g.in.buf = g.in.bodyBuf
	}
	if s.Length < 0 {
		g.in.buf = g.in.buf[:len(g.in.buf)/2-maxChunkFraming] // the other half is for the chunks that are sent
	}
	g.in.ensureBuffer()
	g.body.open(&g.in, g, f, &c.client.Limits)
	c.requestBody = &g.body
}

// chunkBuffer returns a buffer for the chunks in which the body is sent, and whether it is to be put
// back into the pool.
func (c *Call) chunkBuffer() (b []byte, own bool) {
	if g := &c.sourceReader; c.requestBody == &g.body && g.Length < 0 {
		return g.in.bodyBuf[len(g.in.bodyBuf)/2:], false
	}
	return c.client.buffers.getBody(), true
}

// declaresNoBody reports whether a request without a body sends Content-Length: 0. It
// does so if the client did. Without a client it does so for methods that usually have
// a body (RFC 9110 section 8.6).
func (c *Call) declaresNoBody() bool {
	if c.x != nil {
		return c.x.Request.Framing.Length == 0
	}
	return c.method == "POST" || c.method == "PUT" || c.method == "PATCH"
}

// expectsContinue reports whether the body is sent only after the upstream has
// responded with 100 Continue.
func (c *Call) expectsContinue() bool {
	if c.x != nil {
		return c.x.Expects()
	}
	return c.requestBody != nil && c.sourceReader.Expects
}

// cancelBodyRead makes a pending read of the request body return.
func (c *Call) cancelBodyRead() {
	switch {
	case c.x != nil:
		c.x.CancelBodyRead()
	case c.sourceReader.Stop != nil:
		c.sourceReader.Stop()
	}
}

// setUploading records whether an upload goroutine reads the request body.
func (c *Call) setUploading(now bool) {
	if c.x != nil {
		c.x.uploading = now
	}
}
