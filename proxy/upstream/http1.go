package upstream

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/view"
)

// An http1Transport holds the HTTP/1.1 connections to the targets of one pool.
type http1Transport struct {
	client http1.Client
	pools  []*http1.Pool // indexed by backend.number
}

func newHTTP1(c Config, members []*backend) *http1Transport {
	o := &http1Transport{
		client: http1.Client{
			Limits:         http1.Limits{Head: maxHeader, Fields: http1.MaxFields},
			ConnectTimeout: c.connectTimeout(), TLSHandshakeTimeout: c.Timeouts.TLS,
			ResponseTimeout: cmp.Or(c.Timeouts.Response, defaultResponse), BodyTimeout: c.Timeouts.Idle,
			ExpectContinueTimeout: expectContinueTimeout, MaxIdleConns: maxIdlePerTarget, IdleConnTimeout: idleTimeout,
		},
	}
	o.pools = view.Each(members, func(m *backend) *http1.Pool { return o.client.NewPool(c.dialed(m, "http/1.1")) })
	return o
}

// dialed returns how m is connected to. protocol is what is negotiated by TLS (ALPN).
func (c *Config) dialed(m *backend, protocol string) http1.Endpoint {
	e := http1.Endpoint{Network: "tcp", Address: m.dialAddress(), Dial: c.names.dial}
	if m.socket != "" {
		e.Network, e.Address = "unix", m.socket
	}
	if m.scheme == "https" {
		e.TLS = tlsConfigFor(c.TLS, e.Address, protocol)
	}
	return e
}

func (c *Config) connectTimeout() time.Duration { return cmp.Or(c.Timeouts.Connect, defaultConnect) }

// dialAddress returns the host and port of e.
func (e *endpoint) dialAddress() string {
	if _, _, err := net.SplitHostPort(e.host); err == nil {
		return e.host
	}
	port := ":80"
	if e.scheme == "https" {
		port = ":443"
	}
	return e.host + port
}

// tlsConfigFor returns the TLS configuration for connections of a protocol to addr.
func tlsConfigFor(t config.UpstreamTLS, addr, protocol string) *tls.Config {
	c := t.ClientConfig()
	c.NextProtos = []string{protocol}
	c.ClientSessionCache = tls.NewLRUClientSessionCache(0) // resumption costs less than a full handshake
	host, _, _ := net.SplitHostPort(addr)                  // addr always has a port, see dialAddress
	c.ServerName = cmp.Or(c.ServerName, host)
	return c
}

// CloseIdleConnections closes all idle connections. Connections in use are closed after
// their exchange.
func (h *http1Transport) CloseIdleConnections() {
	for _, p := range h.pools {
		p.Close()
	}
}

// probe implements transport.
func (h *http1Transport) probe(ctx context.Context, m *backend, path, via string) (status int, err error) {
	call := h.client.NewCall(nil)
	defer call.Release()
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { call.Abort(); close(aborted) })
	defer func() {
		if !stop() {
			<-aborted
		}
	}()
	head := call.Begin("GET", m.authority, path)
	head.Add("User-Agent", probeUserAgent)
	head.Add("Via", via)
	if err := h.pools[m.number].Send(call); err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(call.Body(), maxProbeBody))
	return call.Response.Status, err
}

// An http1Sender sends a request over HTTP/1.1. If the client uses HTTP/1.1, too,
// request and response are forwarded directly from the buffers of their connections.
type http1Sender struct {
	*forwarding
	transport   *http1Transport
	duplex      *http1.Duplex // nil if the client does not use HTTP/1.1
	keepTrailer func(http1.Field) bool
	call        *http1.Call
	stream      abortingSink // nil if duplex is set
}

// An abortingSink is a Sink that knows when its client is gone, as any Sink does that is not
// an http1.Duplex. It then aborts what was set last; when AbortWith(nil) returns, nothing is
// being aborted any more.
type abortingSink interface{ AbortWith(a http1.Aborter) }

// sender implements transport.
func (h *http1Transport) sender(f *forwarding) sender {
	s := &f.http1
	s.forwarding, s.transport = f, h
	s.duplex, _ = f.to.(*http1.Duplex)
	if s.duplex == nil {
		s.call = h.client.NewCall(nil)
		s.call.Interim = s.relayInterim
		s.stream = f.to.(abortingSink)
		s.stream.AbortWith(s.call)
	} else {
		s.call = h.client.NewCall(s.duplex.Exchange())
	}
	s.prepare()
	return s
}

// prepare sets up the parts of the request that are not forwarded as received.
func (s *http1Sender) prepare() {
	t := s.request
	switch {
	case s.upgrade != "":
		s.call.SetUpgrade(s.upgrade)
	case s.acceptTrailers:
		s.call.AcceptTrailers()
	}
	if t.Length == 0 {
		return
	}
	if t.Length < 0 {
		s.keepTrailer = trailerFilter(t)
	}
	if s.duplex != nil {
		s.call.KeepRequestTrailer = s.keepTrailer
		if t.BufferedBody != nil {
			s.call.SetBody(t.BufferedBody)
		}
		return
	}
	from := http1.Source{
		Reader: t.Body, Length: t.Length, Stop: t.Body.Stop, Trailer: s.addTrailer, Expects: t.expectsContinue(),
	}
	if t.BufferedBody != nil {
		from.Reader, from.Stop = bytes.NewReader(t.BufferedBody), nil
	}
	s.call.SetSource(from)
}

// addTrailer adds the trailer fields of the request. The body has been read.
func (s *http1Sender) addTrailer(h *http1.Head) { addTrailer(h, s.request.Body, s.keepTrailer) }

// relayInterim forwards a 1xx response.
func (s *http1Sender) relayInterim(r *http1.Response) {
	r.Fields.StripHopByHop()
	s.to.Informational(r.Status, &r.Fields)
}

// send implements sender.
func (s *http1Sender) send(m *backend, now time.Time) error {
	t := s.request
	mark := ""
	if t.ForceQuery || t.RawQuery != "" {
		mark = "?"
	}
	s.writeHeader(s.call.Begin(t.Method, cmp.Or(t.SetHost, t.Host), t.Path, mark, t.RawQuery))
	err := s.transport.pools[m.number].SendAt(s.call, now)
	if err == nil {
		s.result.FirstByte = s.call.ResponseAfter(s.start)
	}
	return err
}

// canRetry implements sender.
func (s *http1Sender) canRetry(err error) bool {
	var fault *http1.CallError
	return errors.As(err, &fault) && fault.Retryable(s.request.Method) && (notSent(err) || connectionClosed(err))
}

// response implements sender.
func (s *http1Sender) response() (int, *http1.Fields, error) {
	from := &s.call.Response
	if from.Framing.Kind == http1.Chunked && from.Fields.Has(http1.Connection) {
		named := from.Fields.Values("Connection")
		s.call.KeepResponseTrailer = func(f http1.Field) bool { return !containsToken(named, f.Name) }
	}
	return from.Status, &from.Fields, nil
}

// relay implements sender.
func (s *http1Sender) relay(to Sink) error {
	s.call.OnBody = s.request.OnBody
	if s.duplex == nil {
		return s.call.RelayTo(to)
	}
	x := s.duplex.Exchange()
	x.Begin(s.call.Response.Status).AddFields(&s.call.Response.Fields)
	return x.Relay(s.call)
}

// release implements sender.
func (s *http1Sender) release() {
	if s.stream != nil {
		s.stream.AbortWith(nil)
	}
	s.call.Release()
	*s = http1Sender{}
}

// tunnel copies bytes in both directions after the protocol was switched, which only a target
// over HTTP/1.1 does, until both have ended.
func (f *forwarding) tunnel(fields *http1.Fields) error {
	client, early, err := f.to.SwitchProtocols(f.upgrade, fields)
	if err != nil {
		return err
	}
	target, unread, _ := f.http1.call.UpgradedConn()
	from, to := http1.TunnelEnd{Conn: client, Unread: early}, http1.TunnelEnd{Conn: target, Unread: unread}
	f.pool.config.Groups.Tunnels.Run(from, to)
	return nil
}

// upgradeProtocol returns the protocol that the request may switch to, or "". Only
// WebSocket is possible, on routes that allow it: a GET request without a body (RFC
// 6455 section 4.1). Any other upgrade, h2c in particular, would bypass the limits. In
// HTTP/2 only an extended CONNECT has the field, which its downstream adds.
func upgradeProtocol(t *Request) string {
	if !t.WebSocket || t.Proto == "HTTP/1.0" || t.Method != http.MethodGet || t.Length != 0 {
		return ""
	}
	wish := t.Fields.Values("Upgrade")
	if len(wish) == 1 && strings.EqualFold(wish[0], "websocket") &&
		containsToken(t.Fields.Values("Connection"), "upgrade") {
		return wish[0]
	}
	return ""
}
