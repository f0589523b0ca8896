package http1

import "io"

// A Source is a body that does not come over a connection of a Server.
type Source struct {
	Reader io.Reader
	Length int64 // -1 if unknown
	// Stop ends a read that waits, as nobody wants more. It is called by another
	// goroutine than reads.
	Stop func()
	// Trailer, unless nil, adds the trailer fields to h. It is called when all has been
	// read, and only for a body whose length is not known.
	Trailer func(h *Head)
	// Expects says that it is to be read only if the upstream wants it.
	Expects bool
}

// A sourceReader is a Source as a body is read.
type sourceReader struct {
	Source
	in   input
	body Body
}

// fillBody implements feeder.
func (g *sourceReader) fillBody(b *Body) error {
	g.in.makeRoom(remaining(b))
	return g.in.fill()
}

// SetSource is the body of a request without an exchange, which has none otherwise.
// It must come before Send. Trailer names of the body must have been checked by who
// adds them; what cannot be sent is left out.
func (c *Call) SetSource(s Source) {
	f := Framing{FixedLength, s.Length}
	if s.Length < 0 {
		f = Framing{UntilClose, -1}
	}
	g := &c.sourceReader
	g.Source = s
	g.in = input{from: s.Reader, pool: &c.client.buffers}
	g.in.ensureBuffer()
	g.body.open(&g.in, g, f, &c.client.Limits)
	c.requestBody = &g.body
}

// declaresNoBody reports whether a request without a body says so: where its client
// did, and where its method would let one be expected (RFC 9110 section 8.6).
func (c *Call) declaresNoBody() bool {
	if c.x != nil {
		return c.x.Request.Framing.Length == 0
	}
	return c.method == "POST" || c.method == "PUT" || c.method == "PATCH"
}

// expectsContinue reports whether the body comes only once the upstream wants it.
func (c *Call) expectsContinue() bool {
	if c.x != nil {
		return c.x.Expects()
	}
	return c.requestBody != nil && c.sourceReader.Expects
}

// sendContinue tells the client that the body is wanted. To read a Source is to say so.
func (c *Call) sendContinue() error {
	if c.x == nil {
		return nil
	}
	return c.x.Continue()
}

// cancelBodyRead ends reading of the body.
func (c *Call) cancelBodyRead() {
	switch {
	case c.x != nil:
		c.x.CancelBodyRead()
	case c.sourceReader.Stop != nil:
		c.sourceReader.Stop()
	}
}

// setUploading notes whether another goroutine reads the body.
func (c *Call) setUploading(now bool) {
	if c.x != nil {
		c.x.uploading = now
	}
}
