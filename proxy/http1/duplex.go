package http1

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// A Duplex is an Exchange whose body one goroutine reads while another one answers.
// Only one goroutine may read, and only one may answer.
type Duplex struct {
	x     *Exchange
	whole atomic.Bool // the body was read to its end

	mu sync.Mutex // held while something is sent: of the response, or 100 Continue by who reads
}

// Open makes d ready for x, whose body may have been read before.
func (d *Duplex) Open(x *Exchange) {
	d.x = x
	d.whole.Store(x.Body() == nil || x.Body().done())
}

// Exchange is what d was opened for.
func (d *Duplex) Exchange() *Exchange { return d.x }

// Read reads the body, which tells a client that waits for it to go on. It must not
// be called when the handler has returned.
func (d *Duplex) Read(p []byte) (int, error) {
	d.mu.Lock()
	err := d.x.Continue()
	d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := d.x.Body().Read(p)
	if errors.Is(err, io.EOF) {
		d.whole.Store(true)
	}
	return n, err
}

// Stop ends reading, also a read that waits, unless the body is whole.
func (d *Duplex) Stop() {
	if !d.whole.Load() {
		d.x.CancelBodyRead()
	}
}

// Trailer are the trailer fields of the request. They come with the end of the body.
func (d *Duplex) Trailer() *Fields { return d.x.Body().Trailer() }

// Informational sends a 1xx answer with these fields, if the client can read one.
func (d *Duplex) Informational(status int, f *Fields) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.x.Interim(status).AddFields(f)
	_ = d.x.SendInterim() // the final response will meet the same fate
}

// Begin makes the header of the final response, whose body has so many bytes; -1 if
// unknown. Nothing is sent yet. A response that begins before the body has been
// read ends the connection.
func (d *Duplex) Begin(status int, f *Fields, length int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.x.uploading = !d.whole.Load()
	d.x.Begin(status).AddFields(f)
	framing := Framing{UntilClose, -1}
	if length >= 0 {
		framing = Framing{FixedLength, length}
	}
	return d.x.StartBody(framing)
}

// Write is Exchange.Write.
func (d *Duplex) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.x.Write(p)
}

// Flush is Exchange.Flush.
func (d *Duplex) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.x.Flush()
}

// End is Exchange.EndWith.
func (d *Duplex) End(trailer *Fields) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.x.EndWith(trailer)
}

// SwitchProtocols answers 101 with these fields and gives the connection away; see
// Exchange.SwitchProtocols.
func (d *Duplex) SwitchProtocols(protocol string, f *Fields) (c net.Conn, unread []byte, err error) {
	d.x.Begin(101).AddFields(f)
	return d.x.SwitchProtocols(protocol)
}

// Committed is Exchange.Committed.
func (d *Duplex) Committed() bool { return d.x.Committed() }
