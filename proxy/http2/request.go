package http2

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A Request is the head of a request.
type Request struct {
	Fields                            http1.Fields // without Host
	Method, Authority, Path, Protocol string       // Path includes the query; Protocol is that of an extended CONNECT (RFC 8441)
	Length                            int64        // announced length of the body; 0 for none, -1 if it is unknown

	// Err is why the request must be refused: an *http1.Error, or nil. If its status is
	// 400, the request is malformed, and the stream is reset after the response.
	Err error

	scheme, host string
	hasRegular   bool  // a field that is no pseudo-header field was received
	announced    int64 // Content-Length, or -1
}

// keptHeader is the memory for field lines that is kept for further requests.
const keptHeader = 4 << 10

// setPseudo sets a pseudo-header field. Each may occur once, before all other fields (RFC
// 9113 section 8.3).
func (r *Request) setPseudo(f hpack.HeaderField) error {
	to := &r.Protocol
	switch f.Name {
	case ":method":
		to = &r.Method
	case ":path":
		to = &r.Path
	case ":authority":
		to = &r.Authority
	case ":scheme":
		to = &r.scheme
	case ":protocol":
	default:
		return http1.ErrPseudoField
	}
	if r.hasRegular || *to != "" || f.Value == "" {
		return http1.ErrPseudoField
	}
	*to = f.Value
	return nil
}

// setHost sets the value of Host.
func (r *Request) setHost(value string) error {
	if r.host != "" {
		return http1.ErrHostRepeated
	}
	if value == "" {
		return http1.ErrHost
	}
	r.host = value
	return nil
}

// setLength sets the value of Content-Length. Equal values may be repeated.
func (r *Request) setLength(value string) error {
	if len(value) > 18 || strings.Trim(value, "0123456789") != "" || value == "" {
		return http1.ErrContentLength
	}
	n, _ := strconv.ParseInt(value, 10, 64) // it has at most 18 digits
	if r.announced >= 0 && n != r.announced {
		return http1.ErrContentLengthRepeated
	}
	r.announced = n
	return nil
}

// complete checks the whole head (RFC 9113 section 8.3.1).
func (r *Request) complete() error {
	if r.Authority == "" {
		r.Authority = r.host
	}
	switch {
	case r.Method == methodConnect && r.Protocol == "":
		return http1.ErrConnect
	case r.Method == "" || r.scheme == "" || r.Path == "":
		return http1.ErrPseudoField
	case r.Protocol != "" && (r.Method != methodConnect || r.Length == 0):
		return http1.ErrPseudoField
	case r.Protocol != "" && !strings.EqualFold(r.Protocol, "websocket"):
		return http1.ErrProtocol
	case !http1.ValidMethod(r.Method):
		return http1.ErrMethod
	case !http1.ValidTarget(r.Path), r.Path[0] != '/' && !(r.Path == "*" && r.Method == "OPTIONS"):
		return http1.ErrTarget
	case r.Authority == "":
		return http1.ErrHostMissing
	case !http1.ValidAuthority(r.Authority), r.host != "" && !strings.EqualFold(r.host, r.Authority):
		return http1.ErrHost
	case r.Length == 0 && r.announced > 0: // the stream has ended
		return http1.ErrContentLength
	}
	return nil
}

const methodConnect = "CONNECT"

// completeRequest completes the request after its header block.
func (s *Stream) completeRequest(b *headerBlock) {
	if len(b.cookie) > 0 {
		_ = s.Fields.AddHTTP2("cookie", string(b.cookie)) // its parts were validated
	}
	if s.Length = s.announced; b.endStream {
		s.Length = 0
	}
	switch err := b.err; {
	case err != nil:
		s.Err = err
	default:
		s.Err = s.complete()
	}
}

// Peer returns the remote address of the connection. It is the zero AddrPort for a unix
// socket.
func (s *Stream) Peer() netip.AddrPort { return s.conn.peer }

// Secure reports whether the connection uses TLS.
func (s *Stream) Secure() bool { return s.conn.tls }

// LocalAddr returns the local address of the connection.
func (s *Stream) LocalAddr() net.Addr { return s.conn.net.LocalAddr() }
