package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"

	"github.com/weir-proxy/weir/proxy/http1"
)

// An http2Sender sends a request by net/http's transport, which speaks HTTP/2.
type http2Sender struct {
	*forwarding
	transport   *http2Transport
	template    *http.Request // for any target
	body        *requestBody  // nil if there is none
	lastAttempt *attempt
	idleTimer   *idleTimer // nil if the target may fall silent
	cancel      context.CancelCauseFunc

	httpResponse *http.Response
	fields       http1.Fields

	mu       sync.Mutex // held while an interim response is passed on, and guards what follows
	gotFinal bool       // the final response has come
}

// sender implements transport.
func (o *http2Transport) sender(f *forwarding) sender {
	s := &http2Sender{forwarding: f, transport: o}
	f.upgrade = "" // HTTP/2 has no such thing
	ctx, cancel := context.WithCancelCause(f.ctx)
	s.cancel = cancel
	if o.bodyTimeout > 0 {
		s.idleTimer = newIdleTimer(o.bodyTimeout, cancel)
	}
	t, h := f.request, http.Header{}
	s.template = (&http.Request{Method: t.Method, Host: cmp.Or(t.SetHost, t.Host), Header: h, ContentLength: t.Length}).WithContext(ctx)
	if t.Length != 0 {
		s.body = newRequestBody(f)
		s.template.Body, s.template.Trailer = s.body, s.body.trailer
	}
	f.writeHeader(mapHeader(h))
	if f.acceptTrailers {
		h["Te"] = []string{"trailers"}
	}
	if h["User-Agent"] == nil {
		h["User-Agent"] = nil // or net/http would call itself by its own name
	}
	return s
}

// send implements sender.
func (s *http2Sender) send(m *backend) (err error) {
	s.lastAttempt = s.newAttempt(m)
	s.httpResponse, err = s.transport.RoundTrip(s.lastAttempt.request)
	s.mu.Lock()
	s.gotFinal = err == nil
	s.mu.Unlock()
	if why := s.body.err(); err != nil && why != nil {
		return &requestBodyError{why} // the target could not answer what never arrived
	}
	return err
}

// newAttempt addresses the request to m. A pool that retries keeps an eye on how far it
// gets.
func (s *http2Sender) newAttempt(m *backend) *attempt {
	try := &attempt{}
	trace := &httptrace.ClientTrace{Got1xxResponse: s.relayInterim}
	if s.transport.retries {
		trace.GotFirstResponseByte = func() { try.responseStarted.Store(true) }
	}
	try.request = s.template.WithContext(httptrace.WithClientTrace(s.template.Context(), trace)) // a shallow copy
	t := s.request
	try.request.URL = &url.URL{RawQuery: t.RawQuery, ForceQuery: t.ForceQuery}
	setURL(try.request.URL, m, t.Path)
	if s.transport.retries && s.body != nil {
		try.body = &attemptBody{ReadCloser: s.body}
		try.request.Body = try.body
	}
	return try
}

// canRetry implements sender.
func (s *http2Sender) canRetry(err error) bool { return s.lastAttempt.canRetry(err) }

// relayInterim passes a 1xx response on.
func (s *http2Sender) relayInterim(status int, h textproto.MIMEHeader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gotFinal || status == http.StatusContinue { // that is sent when the body is read
		return nil
	}
	f := FieldsFromHeader(http.Header(h))
	f.StripHopByHop()
	s.to.Informational(status, f)
	return nil
}

// response implements sender.
func (s *http2Sender) response() (int, *http1.Fields, error) {
	res := s.httpResponse
	switch {
	case res.StatusCode < 100:
		return 0, nil, fmt.Errorf("status %03d", res.StatusCode)
	case res.StatusCode == http.StatusSwitchingProtocols:
		return 0, nil, errors.New("unrequested 101 response")
	}
	addHeader(&s.fields, res.Header)
	if names := sortedNames(res.Trailer); len(names) > 0 {
		s.fields.Add("Trailer", strings.Join(names, ", "))
	}
	return res.StatusCode, &s.fields, nil
}

// relay implements sender. The header, and each piece, is sent on as it comes: that more
// is there already cannot be told.
func (s *http2Sender) relay(to Sink) error {
	res := s.httpResponse
	named, left := res.Header["Connection"], int64(-1)
	if res.Header["Content-Length"] != nil { // net/http also knows it where nobody has said it
		left = res.ContentLength
	}
	if err := to.Begin(res.StatusCode, &s.fields, left); err != nil {
		return err
	}
	// A response that is a header and nothing else has to stay so: of gRPC's errors,
	// the header is the trailer (Trailers-Only).
	if s.request.Method != http.MethodHead && res.ContentLength != 0 && res.StatusCode != http.StatusNoContent && res.StatusCode != http.StatusNotModified {
		if err := to.Flush(); err != nil {
			return err
		}
	}
	buf := s.pool.buffers.Get()
	defer s.pool.buffers.Put(buf)
	for {
		n, err := s.readBody(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		left -= int64(n)
		switch {
		case errors.Is(err, io.EOF):
			s.body.Stop() // net/http ends a response only when nobody reads the request's body any more
			f := FieldsFromHeader(res.Trailer)
			f.DropFunc(func(f http1.Field) bool {
				return !trailerAllowed(http.CanonicalHeaderKey(f.Name)) || containsToken(named, f.Name)
			})
			return to.End(f)
		case err != nil:
			_ = to.Flush() // what has come is the client's
			return err
		case left == 0: // the end will send it
		default:
			if err := to.Flush(); err != nil {
				return err
			}
		}
	}
}

// readBody reads some of the response's body.
func (s *http2Sender) readBody(p []byte) (int, error) {
	s.idleTimer.begin()
	n, err := s.httpResponse.Body.Read(p)
	s.idleTimer.end()
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	case errors.Is(context.Cause(s.template.Context()), errBodyTimeout):
		err = errBodyTimeout
	}
	if why := s.body.err(); why != nil {
		return n, &requestBodyError{why}
	}
	return n, &truncatedError{err}
}

// switched implements sender; it never does.
func (s *http2Sender) switched() (net.Conn, []byte) { return nil, nil }

// release implements sender.
func (s *http2Sender) release() {
	s.cancel(nil)
	if s.httpResponse != nil {
		_ = s.httpResponse.Body.Close() // what is left of it is nobody's
	}
	s.body.close()
}

// A bodyReader is where the body of t is read from.
func (t *Request) bodyReader() io.Reader {
	if t.BufferedBody != nil {
		return bytes.NewReader(t.BufferedBody)
	}
	return t.Body
}
