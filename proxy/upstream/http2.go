package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
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
	retries     bool
}

func newHTTP2(c Config, members []*backend) *http2Transport {
	sockets := map[string]string{}
	for _, m := range members {
		if m.socket != "" {
			sockets[m.host+":80"] = m.socket
		}
	}
	return &http2Transport{newTransport(c, sockets), c.BodyTimeout, c.Retries > 0}
}

// probe implements transport.
func (o *http2Transport) probe(ctx context.Context, m *backend, path, via string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.scheme+"://"+m.host, nil)
	if err != nil {
		return 0, err
	}
	setURL(r.URL, m, path)
	r.Host = m.authority
	r.Header = http.Header{"User-Agent": {probeUserAgent}, "Via": {via}}
	res, err := o.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.CopyN(io.Discard, res.Body, maxProbeBody)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return res.StatusCode, err
}

// setURL sets the URL for m. The path goes into Opaque, which net/http sends unchanged.
// It would escape Path again, with a different result.
func setURL(u *url.URL, m *backend, path string) {
	u.Scheme, u.Host, u.Path, u.Opaque = m.scheme, m.host, path, path
	if path != "*" {
		u.Opaque = m.basePath + path
	}
}

// newTransport returns a transport for HTTP/2. sockets maps addresses to paths of unix
// sockets.
func newTransport(c Config, sockets map[string]string) *http.Transport {
	d := dialer{
		Dialer:           net.Dialer{Timeout: orDefault(c.ConnectTimeout, defaultConnect), KeepAlive: 15 * time.Second, Resolver: c.Resolver},
		writeTimeout:     orDefault(c.ResponseTimeout, defaultResponse),
		handshakeTimeout: c.TLSHandshakeTimeout,
		sockets:          sockets,
		tls:              &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if c.TLS != nil {
		d.tls = c.TLS.Clone()
	}
	d.tls.ClientSessionCache = tls.NewLRUClientSessionCache(0) // see tlsConfigFor
	protocols := new(http.Protocols)
	switch c.Protocol {
	case HTTP1: // served by http1Transport
	case HTTP2:
		d.tls.NextProtos = []string{"h2"}
		protocols.SetHTTP2(true)
	case H2C:
		protocols.SetUnencryptedHTTP2(true)
	}
	return &http.Transport{
		Proxy:                  nil, // ignore HTTP_PROXY
		DialContext:            d.dial,
		DialTLSContext:         d.dialTLS,
		Protocols:              protocols,
		DisableCompression:     true, // the client's Accept-Encoding is forwarded
		MaxIdleConnsPerHost:    maxIdlePerTarget,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingInterval},
		IdleConnTimeout:        idleTimeout,
		ResponseHeaderTimeout:  orDefault(c.ResponseTimeout, defaultResponse),
		ExpectContinueTimeout:  expectContinueTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// A dialError reports that no connection was established, so that the target has
// received nothing.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// A writeTimeoutConn bounds each write. net/http has no such timeout: its timeout for
// the response starts only after the whole request was sent.
type writeTimeoutConn struct {
	net.Conn
	timeout time.Duration
}

func (c writeTimeoutConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// A dialer establishes connections with a write timeout.
type dialer struct {
	net.Dialer
	writeTimeout     time.Duration
	handshakeTimeout time.Duration     // if 0, the timeout for connecting includes the handshake
	sockets          map[string]string // paths of unix sockets by address
	tls              *tls.Config
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if path, ok := d.sockets[addr]; ok {
		network, addr = "unix", path
	}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, &dialError{err}
	}
	return writeTimeoutConn{c, d.writeTimeout}, nil
}

func (d *dialer) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	c, err := d.dial(dialCtx, network, addr)
	if err != nil {
		return nil, err
	}
	if d.handshakeTimeout > 0 {
		dialCtx, cancel = context.WithTimeout(ctx, d.handshakeTimeout)
		defer cancel()
	}
	config := d.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr) // net/http always adds a port
	}
	t := tls.Client(c, config)
	err = t.HandshakeContext(dialCtx)
	if got := t.ConnectionState().NegotiatedProtocol; err == nil && config.NextProtos[0] == "h2" && got != "h2" {
		err = errors.New("target does not support HTTP/2")
	}
	if err != nil {
		c.Close()
		return nil, &dialError{fmt.Errorf("tls: %w", err)}
	}
	return t, nil
}
