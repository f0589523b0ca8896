package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// An outcomeWriter notices the status of a response before it is sent. Like the writers of
// net/http, it is not safe for concurrent use. It keeps what http.ResponseController and
// type assertions for http.Flusher, http.Hijacker and io.ReaderFrom find.
type outcomeWriter struct {
	http.ResponseWriter
	decide func(status int) // nil once it was called
}

// settle decides by the status, once. An interim status does not decide.
func (o *outcomeWriter) settle(status int) {
	if decide := o.decide; decide != nil && (status >= 200 || status == http.StatusSwitchingProtocols) {
		o.decide = nil
		decide(status)
	}
}

// Unwrap returns the writer of the server, for http.ResponseController.
func (o *outcomeWriter) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// WriteHeader sends the status after it has decided.
func (o *outcomeWriter) WriteHeader(status int) {
	o.settle(status)
	o.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body; the status is 200 unless WriteHeader was called.
func (o *outcomeWriter) Write(b []byte) (int, error) {
	o.settle(http.StatusOK)
	return o.ResponseWriter.Write(b)
}

// ReadFrom copies r to the body, without a copy in between where the server can.
func (o *outcomeWriter) ReadFrom(r io.Reader) (int64, error) {
	o.settle(http.StatusOK)
	return io.Copy(o.ResponseWriter, r)
}

// Flush sends what is buffered.
func (o *outcomeWriter) Flush() {
	o.settle(http.StatusOK)
	_ = http.NewResponseController(o.ResponseWriter).Flush() // a writer that cannot sends it at the end
}

// Hijack takes the connection over. Whatever is sent on it counts as status 101.
func (o *outcomeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(o.ResponseWriter).Hijack()
	if err == nil {
		o.settle(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}
