package frontend

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gaissmai/bart"
	"github.com/pires/go-proxyproto"

	"github.com/weir-proxy/weir/proxy/http1"
)

// handshake performs the TLS handshake on c, and serves the negotiated protocol (ALPN).
func (s *Server) handshake(c net.Conn, config *tls.Config) {
	ctx, cancel := context.WithTimeout(s.ctx, s.config.Timeouts.Handshake)
	defer cancel()
	t := http1.TLSServer(c, config)
	if err := t.HandshakeContext(ctx); err != nil {
		s.log.Debug().Err(err).Stringer("peer", c.RemoteAddr()).Msg("tls handshake failed")
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil && isHTTP1(plain.RecordHeader[:]) {
			s.replyPlainHTTP(plain.Conn)
		}
		c.Close()
		return
	}
	cancel()
	switch t.ConnectionState().NegotiatedProtocol {
	case alpnACME:
		t.Close() // the handshake was all that the validation needs
	case "h2":
		s.http2.ServeConn(t, nil)
	default:
		s.http1.ServeConn(t)
	}
}

// isHTTP1 reports whether the first bytes of a connection are those of an HTTP/1
// request without TLS.
func isHTTP1(begin []byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO"}, string(begin))
}

// replyPlainHTTP sends an error response to a client that uses HTTP on a port for
// HTTPS.
func (s *Server) replyPlainHTTP(c net.Conn) {
	_ = c.SetWriteDeadline(time.Now().Add(s.config.Timeouts.Write)) // if it fails, so does Write
	const text = "This is a port for HTTPS.\n"
	r := http.Response{
		StatusCode: http.StatusBadRequest, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		Body:   io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}
	_ = r.Write(c)
}

// proxyProtocol wraps l so that the client address is read from a PROXY protocol
// header, version 1 or 2, on connections from trusted load balancers. The header is
// mandatory there, and must arrive within the timeout for a header. On all other connections it is
// not accepted: it is an invalid HTTP request, which gets 400. Otherwise any client
// could choose its address.
func (s *Server) proxyProtocol(l net.Listener) net.Listener {
	if len(s.config.ProxyProtocol) == 0 {
		return l
	}
	balancers := new(bart.Lite)
	for _, p := range s.config.ProxyProtocol {
		balancers.Insert(p.Masked())
	}
	return &proxyproto.Listener{
		Listener:          l,
		ReadHeaderTimeout: s.config.Timeouts.Header,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			peer, err := netip.ParseAddrPort(o.Upstream.String())
			if err == nil && balancers.Contains(unmap(peer.Addr())) {
				return proxyproto.REQUIRE, nil
			}
			return proxyproto.SKIP, nil
		},
	}
}

// hasHeader reads the PROXY protocol header of c, and reports false if it is not valid, so that c must be
// closed. It logs the first error of each minute. A balancer that only tries to connect makes none.
func (s *Server) hasHeader(c net.Conn) bool {
	behind, ok := c.(*proxyproto.Conn)
	if !ok {
		return true
	}
	_, err := behind.Write(nil) // returns the error of the header
	if err == nil {
		return true
	}
	defer c.Close()
	_ = behind.Raw().SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, more := behind.Raw().Read(make([]byte, 1)); errors.Is(more, io.EOF) { // it has closed by itself
		return false
	}
	s.badHeaders.Add(1)
	now, last := time.Now().Unix(), s.badHeaderLogged.Load()
	if now-last >= int64(acceptLogInterval.Seconds()) && s.badHeaderLogged.CompareAndSwap(last, now) {
		s.log.Warn().Err(err).Stringer("peer", behind.Raw().RemoteAddr()).Msg("no valid PROXY protocol header")
	}
	return false
}

// BadProxyHeaders returns how many connections were closed because the header of the PROXY protocol was
// missing or not valid.
func (s *Server) BadProxyHeaders() int64 { return s.badHeaders.Load() }

// unmap normalizes an address: ::ffff:1.2.3.4 becomes 1.2.3.4, and a zone is removed.
func unmap(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
