package http1

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// A Duplex is an Exchange whose request body is read by one goroutine while another
// goroutine writes the response. At most one goroutine may read and one may write.
type Duplex struct {
	x     *Exchange
	whole atomic.Bool // the request body was read to its end

	mu sync.Mutex // held during writes: of the response, or of 100 Continue by the reader
}

// Open initializes d for x. The body of x may have been read before.
func (d *Duplex) Open(x *Exchange) {
	d.x = x
	d.whole.Store(x.Body() == nil || x.Body().done())
}

// Exchange returns the exchange of d.
func (d *Duplex) Exchange() *Exchange { return d.x }

// Read reads the request body. The first read sends 100 Continue if the client waits
// for that. Read must not be called after the handler has returned.
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

// Stop makes a pending read return and prevents further reads, unless the body was read
// to its end.
func (d *Duplex) Stop() {
	if !d.whole.Load() {
		d.x.CancelBodyRead()
	}
}

// Trailer returns the trailer fields of the request. They are available after the body
// was read to its end.
func (d *Duplex) Trailer() *Fields { return d.x.Body().Trailer() }

// Informational sends a 1xx response with these fields, unless the client uses
// HTTP/1.0.
func (d *Duplex) Informational(status int, f *Fields) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.x.Interim(status).AddFields(f)
	_ = d.x.SendInterim() // if it fails, the final response fails, too
}

// Begin completes the head of the final response. length is the length of the body, or
// -1 if it is unknown. Nothing is sent yet. If the request body has not been read to
// its end, the connection is closed after the response.
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

// SwitchProtocols sends 101 with these fields and hands over the connection. See
// Exchange.SwitchProtocols.
func (d *Duplex) SwitchProtocols(protocol string, f *Fields) (c net.Conn, unread []byte, err error) {
	d.x.Begin(101).AddFields(f)
	return d.x.SwitchProtocols(protocol)
}

// Committed is Exchange.Committed.
func (d *Duplex) Committed() bool { return d.x.Committed() }
