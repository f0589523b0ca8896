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

	// A target that never answers "100 Continue" gets the body after this.
	expectContinueTimeout = time.Second
	// Idle connections end before most servers end them from their side.
	idleTimeout = 30 * time.Second
	// maxIdlePerTarget keeps bursts from dialling again each time.
	maxIdlePerTarget = 512
	// A connection of HTTP/2 that brings nothing for so long is tried out.
	pingInterval = 15 * time.Second
	// maxHeader is the longest header of a response.
	maxHeader = 256 << 10
)

// http2Transport is the connections of HTTP/2 to the targets of one pool: net/http's.
type http2Transport struct {
	*http.Transport
	bodyTimeout time.Duration // that a target may fall silent; 0 for any
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

// setURL points u at m. The path goes into Opaque, which net/http sends as it is:
// Path would be escaped again, in a spelling of its own.
func setURL(u *url.URL, m *backend, path string) {
	u.Scheme, u.Host, u.Path, u.Opaque = m.scheme, m.host, path, path
	if path != "*" {
		u.Opaque = m.basePath + path
	}
}

// newTransport makes the connections. Addresses in sockets are those of unix sockets.
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
	protocols := new(http.Protocols)
	switch c.Protocol {
	case HTTP1: // is not net/http's; see http1Transport
	case HTTP2:
		d.tls.NextProtos = []string{"h2"}
		protocols.SetHTTP2(true)
	case H2C:
		protocols.SetUnencryptedHTTP2(true)
	}
	return &http.Transport{
		Proxy:                  nil, // never from the environment
		DialContext:            d.dial,
		DialTLSContext:         d.dialTLS,
		Protocols:              protocols,
		DisableCompression:     true, // what the client accepts is what is asked for
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

// A dialError says that there is no connection, so that the target has seen
// nothing of the request.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// A writeTimeoutConn connection gives up when the other end takes nothing for so long:
// net/http bounds only the wait for a response, which begins when the request has been
// sent whole.
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

// A dialer makes connections that do not wait for ever to be written to.
type dialer struct {
	net.Dialer
	writeTimeout     time.Duration
	handshakeTimeout time.Duration     // 0: the time to connect is for both
	sockets          map[string]string // by address
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
	within, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	c, err := d.dial(within, network, addr)
	if err != nil {
		return nil, err
	}
	if d.handshakeTimeout > 0 {
		within, cancel = context.WithTimeout(ctx, d.handshakeTimeout)
		defer cancel()
	}
	config := d.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr) // net/http has put it together
	}
	t := tls.Client(c, config)
	err = t.HandshakeContext(within)
	if got := t.ConnectionState().NegotiatedProtocol; err == nil && config.NextProtos[0] == "h2" && got != "h2" {
		err = errors.New("the target does not speak HTTP/2")
	}
	if err != nil {
		c.Close()
		return nil, &dialError{fmt.Errorf("tls: %w", err)}
	}
	return t, nil
}
