package upstream

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
)

const (
	defaultConnect  = 2 * time.Second
	defaultResponse = 30 * time.Second

	// expectContinueTimeout is how long to wait for 100 Continue before the body is
	// sent.
	expectContinueTimeout = time.Second
	// idleTimeout is shorter than that of most servers, so that they rarely close an
	// idle connection first.
	idleTimeout = 30 * time.Second
	// maxIdlePerTarget is large enough that bursts of requests reuse connections.
	maxIdlePerTarget = 512
	// pingInterval is how long an HTTP/2 connection may be silent before a PING is
	// sent.
	pingInterval = 15 * time.Second
	// maxHeader is the maximum size of the head of a response.
	maxHeader = 256 << 10
)

// An http2Transport holds the HTTP/2 connections to the targets of one pool. It uses
// net/http.
type http2Transport struct {
	*http.Transport
	bodyTimeout time.Duration // between reads of a response body; 0 for none
}

// newHTTP2 returns a transport whose connections are established as those of HTTP/1.1 are.
func newHTTP2(c Config, members []*backend) *http2Transport {
	timeout, endpoints := cmp.Or(c.Timeouts.Response, defaultResponse), map[string]*http1.Endpoint{} // by the addresses of net/http
	for _, m := range members {
		e := c.dialed(m, "h2")
		dial := e.Dial
		e.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return writeTimeoutConn{conn, timeout}, err
		}
		endpoints[m.dialAddress()] = &e
	}
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
		conn, err := endpoints[addr].Connect(ctx, c.connectTimeout(), c.Timeouts.TLS)
		if err != nil {
			return nil, err
		}
		if t, ok := conn.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol != "h2" {
			t.Close()
			return nil, &http1.CallError{Phase: http1.Handshaking, Err: errors.New("target does not support HTTP/2")}
		}
		return conn, nil
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(c.Protocol == config.ProtocolH2)
	protocols.SetUnencryptedHTTP2(c.Protocol != config.ProtocolH2)
	// The default of MaxReceiveBufferPerStream would cost 4 MiB for each request of a client that does not read.
	return &http2Transport{&http.Transport{
		Proxy:                  nil, // ignore HTTP_PROXY
		DialContext:            dial,
		DialTLSContext:         dial,
		Protocols:              protocols,
		DisableCompression:     true, // the client's Accept-Encoding is forwarded
		MaxIdleConnsPerHost:    maxIdlePerTarget,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingInterval, MaxReceiveBufferPerStream: 8 * bufferSize},
		IdleConnTimeout:        idleTimeout,
		ResponseHeaderTimeout:  timeout,
		ExpectContinueTimeout:  expectContinueTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}, c.Timeouts.Idle}
}

// probe implements transport.
func (o *http2Transport) probe(ctx context.Context, m *backend, path, via string) (status int, err error) {
	r := (&http.Request{
		Method: http.MethodGet, URL: new(url.URL), Host: m.authority, Header: http.Header{"User-Agent": {probeUserAgent}, "Via": {via}},
	}).WithContext(ctx)
	setURL(r.URL, m, path)
	res, err := o.send(r, new(httptrace.ClientTrace))
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxProbeBody))
	return res.StatusCode, err
}

// setURL sets the URL for m. The path goes into Opaque, which net/http sends unchanged.
// It would escape Path again, with a different result.
func setURL(u *url.URL, m *backend, path string) {
	u.Scheme, u.Host, u.Path, u.Opaque = m.scheme, m.host, path, path
}

// A writeTimeoutConn bounds each write. net/http has no such timeout: its timeout for
// the response starts only after the whole request was sent.
type writeTimeoutConn struct {
	net.Conn
	timeout time.Duration
}

func (c writeTimeoutConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.timeout)) // if it fails, so does Write
	return c.Conn.Write(b)
}

// An http2Sender sends a request over HTTP/2 with the transport of net/http.
type http2Sender struct {
	*forwarding
	transport   *http2Transport
	template    *http.Request // the request without a target
	body        *requestBody  // nil if there is none
	lastAttempt *attempt
	cancel      context.CancelCauseFunc

	httpResponse *http.Response
	fields       *http1.Fields

	mu      sync.Mutex    // guards the fields below; not held only in send: the Sink may be in use, or belong to another request
	interim int           // 1xx responses that were forwarded
	relayed chan struct{} // closed when the last of them was; nil if there was none
}

// sender implements transport.
func (o *http2Transport) sender(f *forwarding) sender {
	s := &http2Sender{forwarding: f, transport: o}
	s.mu.Lock()
	f.upgrade = "" // HTTP/2 has no Upgrade (RFC 9113 section 8.6)
	ctx, cancel := context.WithCancelCause(f.ctx)
	s.cancel = cancel
	t, h := f.request, http.Header{}
	// net/http keeps the texts of a head in the HPACK table of the connection, and so for longer than the request.
	s.template = (&http.Request{
		Method: strings.Clone(t.Method), Host: strings.Clone(cmp.Or(t.SetHost, t.Host)), Header: h, ContentLength: t.Length,
		URL: &url.URL{Path: strings.Clone(t.Path), RawQuery: strings.Clone(t.RawQuery), ForceQuery: t.ForceQuery},
	}).WithContext(ctx)
	if t.Length != 0 {
		s.body = newRequestBody(f)
		s.template.Trailer = s.body.trailer
	}
	f.writeHeader(mapHeader(h))
	if f.acceptTrailers {
		h["Te"] = []string{"trailers"}
	}
	if h["User-Agent"] == nil {
		h["User-Agent"] = nil // prevents the default of net/http
	}
	return s
}

// send implements sender.
func (s *http2Sender) send(m *backend, _ time.Time) (err error) {
	s.lastAttempt = s.newAttempt(m)
	s.mu.Unlock()
	s.httpResponse, err = s.transport.send(s.lastAttempt.request, s.lastAttempt.trace)
	s.mu.Lock() // net/http may still receive interim responses
	if s.relayed != nil {
		<-s.relayed
	}
	if cause := s.body.err(); err != nil && cause != nil {
		return fmt.Errorf("%w: %w", errRequestBody, cause) // the cause: the target did not get the whole request
	}
	return err
}

// giveUp ends send, because the target has not accepted a part of the request body in time.
func (s *http2Sender) giveUp() {
	if s.mu.TryLock() {
		defer s.mu.Unlock()
		s.cancel(fmt.Errorf("send request body: %w", os.ErrDeadlineExceeded))
	}
}

// newAttempt returns the request to m, and tracks its progress.
func (s *http2Sender) newAttempt(m *backend) *attempt {
	try := &attempt{requestBody: s.body, timeout: s.transport.ResponseHeaderTimeout}
	try.trace = &httptrace.ClientTrace{Got1xxResponse: s.relayInterim, GotFirstResponseByte: func() { try.responseStarted.Store(true) }}
	try.request = s.template.WithContext(s.template.Context()) // a shallow copy
	to := *s.template.URL
	setURL(&to, m, to.Path)
	try.request.URL = &to
	if s.body != nil {
		try.stalled = time.AfterFunc(math.MaxInt64, s.giveUp)
		try.stalled.Stop()
		try.trace.WroteRequest = func(httptrace.WroteRequestInfo) { try.stalled.Stop() } // net/http has the timeout after that
		try.request.Body = try
	}
	return try
}

// canRetry implements sender.
func (s *http2Sender) canRetry(err error) bool { return s.lastAttempt.canRetry(err) }

// maxInterim is how many 1xx responses to one request are forwarded, as over HTTP/1.1.
const maxInterim = 100

// relayInterim forwards a 1xx response. The goroutine that calls it reads the connection for all requests on it, which
// must not wait for this client: send does.
func (s *http2Sender) relayInterim(status int, h textproto.MIMEHeader) error {
	if status == http.StatusContinue || !s.mu.TryLock() { // 100 Continue is sent when the body is read
		return nil
	}
	defer s.mu.Unlock()
	if s.interim++; s.interim <= maxInterim {
		f := fieldsFromHeader(http.Header(h))
		f.StripHopByHop()
		before, relayed := s.relayed, make(chan struct{})
		s.relayed = relayed
		go func() {
			defer close(relayed)
			if before != nil {
				<-before
			}
			s.to.Informational(status, f)
		}()
	}
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
	case res.StatusCode == http.StatusResetContent: // must have no body (RFC 9110 section 15.3.6)
		res.Body.Close()
		res.Body, res.ContentLength = http.NoBody, 0
		res.Header.Set("Content-Length", "0")
	}
	s.fields = fieldsFromHeader(res.Header)
	if names := slices.Sorted(maps.Keys(res.Trailer)); len(names) > 0 {
		s.fields.Add("Trailer", strings.Join(names, ", "))
	}
	return res.StatusCode, s.fields, nil
}

// relay implements sender. It flushes the head and every part of the body separately,
// because it cannot know whether more data is available.
func (s *http2Sender) relay(to Sink) error {
	res := s.httpResponse
	named, left := res.Header["Connection"], int64(-1)
	if res.Header["Content-Length"] != nil { // otherwise ContentLength may be inferred by net/http
		left = res.ContentLength
	}
	if err := to.Begin(res.StatusCode, s.fields, left); err != nil {
		return err
	}
	// A response that consists of a single HEADERS frame must stay so: for errors of
	// gRPC, that frame is the trailer section (Trailers-Only).
	if s.request.Method != http.MethodHead && res.ContentLength != 0 &&
		res.StatusCode != http.StatusNoContent && res.StatusCode != http.StatusNotModified {
		if err := to.Flush(); err != nil {
			return err
		}
	}
	buffer := s.pool.buffers.Get().(*[bufferSize]byte)
	buf := buffer[:]
	defer func() {
		if reuse.Memory(buf) != nil {
			s.pool.buffers.Put(buffer)
		}
	}()
	for {
		n, err := s.readBody(buf)
		if n > 0 {
			if s.request.OnBody != nil {
				s.request.OnBody(buf[:n])
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		left -= int64(n)
		switch {
		case errors.Is(err, io.EOF):
			s.body.Stop() // net/http ends a response only after reading of the request body has ended
			f := fieldsFromHeader(res.Trailer)
			f.DropFunc(func(f http1.Field) bool {
				return !trailerAllowed(http.CanonicalHeaderKey(f.Name)) || containsToken(named, f.Name)
			})
			return to.End(f)
		case err != nil:
			_ = to.Flush() // the client gets what was received before
			return err
		case left != 0: // otherwise End flushes
			if err := to.Flush(); err != nil {
				return err
			}
		}
	}
}

// readBody reads from the response body.
func (s *http2Sender) readBody(p []byte) (int, error) {
	if timeout := s.transport.bodyTimeout; timeout > 0 {
		defer time.AfterFunc(timeout, func() { s.cancel(errBodyTimeout) }).Stop()
	}
	n, err := s.httpResponse.Body.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if cause := s.body.err(); cause != nil {
		return n, fmt.Errorf("%w: %w", errRequestBody, cause)
	}
	return n, fmt.Errorf("%w: %w", errReadResponse, cmp.Or(context.Cause(s.template.Context()), err))
}

// release implements sender.
func (s *http2Sender) release() {
	s.cancel(nil)
	if s.httpResponse != nil {
		_ = s.httpResponse.Body.Close() // the rest of the body is not needed
	}
	s.body.close()
}

// bodyReader returns a reader for the body of r.
func (r *Request) bodyReader() io.Reader {
	if r.BufferedBody != nil {
		return bytes.NewReader(r.BufferedBody)
	}
	return r.Body
}

// fieldsFromHeader returns the fields of a net/http header.
func fieldsFromHeader(h http.Header) *http1.Fields {
	f := new(http1.Fields)
	for name, values := range h {
		for _, value := range values {
			f.Add(name, value)
		}
	}
	return f
}
