package weirtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A Handler serves requests of HTTP/1.1.
type Handler interface {
	ServeHTTP1(x *http1.Exchange)
	RefuseHTTP1(x *http1.Exchange, err error)
}

// Exchange has h serve one request over a connection in memory, and returns its response when the
// connection has ended. If the request's context is done, or its response is not complete, the client
// leaves.
func Exchange(h Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	ServeHTTP(h, w, r)
	return w
}

// ServeHTTP is Exchange with a response that is written while it comes.
func ServeHTTP(h Handler, w http.ResponseWriter, r *http.Request) {
	client, server := net.Pipe()
	s := &http1.Server{Handler: h.ServeHTTP1, ErrorHandler: h.RefuseHTTP1, Limits: http1.Limits{Fields: 1024}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.ServeConn(memoryConn{server, r.RemoteAddr})
	}()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = writeRequest(client, r) // what is not sent is seen in the response
	}()
	left := make(chan struct{})
	go func() {
		defer close(left)
		select {
		case <-r.Context().Done():
			client.Close()
		case <-ended:
		}
	}()
	_ = readResponse(client, w, r)
	client.Close()
	<-ended
	<-sent
	<-left
	s.Close() // ends what watches its clients
}

// A memoryConn is a connection from an address.
type memoryConn struct {
	net.Conn
	from string
}

// RemoteAddr implements net.Conn.
func (m memoryConn) RemoteAddr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", m.from)
	if err != nil {
		return m.Conn.RemoteAddr()
	}
	return addr
}

// LocalAddr implements net.Conn.
func (m memoryConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// writeRequest writes r as its client would, in one piece as far as possible.
func writeRequest(to io.Writer, r *http.Request) error {
	b := bufio.NewWriter(to)
	fmt.Fprintf(b, "%s %s HTTP/1.1\r\n", r.Method, r.RequestURI)
	if r.Host != "" {
		fmt.Fprintf(b, "Host: %s\r\n", r.Host)
	}
	for name, values := range r.Header {
		for _, value := range values {
			fmt.Fprintf(b, "%s: %s\r\n", name, value)
		}
	}
	hasBody := r.Body != nil && r.Body != http.NoBody
	isChunked := hasBody && r.ContentLength < 0
	switch {
	case r.Header.Get("Content-Length") != "" || r.Header.Get("Transfer-Encoding") != "":
	case isChunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case hasBody:
		fmt.Fprintf(b, "Content-Length: %d\r\n", r.ContentLength)
	}
	for name := range r.Trailer {
		fmt.Fprintf(b, "Trailer: %s\r\n", name)
	}
	b.WriteString("\r\n")
	if hasBody && r.Header.Get("Expect") != "" || hasBody && !isBuffered(r.Body) {
		if err := b.Flush(); err != nil { // a body that is not sent at once
			return err
		}
	}
	if hasBody {
		if err := writeBody(b, r); err != nil {
			return err
		}
	}
	return b.Flush()
}

// isBuffered reports whether a body was given as a text.
func isBuffered(body io.Reader) bool {
	_, is := body.(interface {
		WriteTo(io.Writer) (int64, error)
	})
	return is
}

func writeBody(b *bufio.Writer, r *http.Request) error {
	if r.ContentLength >= 0 {
		_, err := io.Copy(b, r.Body)
		return err
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if len(text) > 0 {
		fmt.Fprintf(b, "%x\r\n%s\r\n", len(text), text)
	}
	b.WriteString("0\r\n")
	for name, values := range r.Trailer {
		fmt.Fprintf(b, "%s: %s\r\n", name, strings.Join(values, ", "))
	}
	_, err = b.WriteString("\r\n")
	return err
}

// readResponse copies the response to w.
func readResponse(from io.Reader, w http.ResponseWriter, r *http.Request) error {
	b := bufio.NewReader(from)
	for {
		answer, err := http.ReadResponse(b, r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		for name, values := range answer.Header {
			w.Header()[name] = values
		}
		if answer.ContentLength > 0 {
			w.Header().Set("Content-Length", fmt.Sprint(answer.ContentLength))
		}
		w.WriteHeader(answer.StatusCode)
		if answer.StatusCode < 200 && answer.StatusCode != http.StatusSwitchingProtocols {
			clear(w.Header())
			continue
		}
		_, err = io.Copy(flushing{w}, answer.Body)
		for name, values := range answer.Trailer {
			for _, value := range values {
				w.Header().Add(http.TrailerPrefix+name, value)
			}
		}
		return err
	}
}

// A flushing passes each piece on at once.
type flushing struct{ http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	if flushErr := http.NewResponseController(f.ResponseWriter).Flush(); !errors.Is(flushErr, http.ErrNotSupported) {
		err = errors.Join(err, flushErr)
	}
	return n, err
}
