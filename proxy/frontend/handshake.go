package frontend

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A handshaker performs TLS handshakes, and passes the connections to the server for
// the negotiated protocol (ALPN).
type handshaker struct {
	config       *tls.Config
	timeout      time.Duration // for one handshake
	writeTimeout time.Duration
	log          zerolog.Logger

	http1, http2 func(net.Conn)
}

// handshake performs the handshake on c. It gives up when ctx is done.
func (h *handshaker) handshake(ctx context.Context, c net.Conn) {
	handshakeCtx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	t := http1.TLSServer(c, h.config)
	if err := t.HandshakeContext(handshakeCtx); err != nil {
		h.log.Debug().Err(err).Stringer("peer", c.RemoteAddr()).Msg("tls handshake failed")
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil && isHTTP1(plain.RecordHeader[:]) {
			h.replyPlainHTTP(plain.Conn)
		}
		c.Close()
		return
	}
	cancel()
	switch t.ConnectionState().NegotiatedProtocol {
	case alpnACME:
		t.Close() // the handshake was all that the validation needs
	case "h2":
		h.http2(t)
	default:
		h.http1(t)
	}
}

// isHTTP1 reports whether the first bytes of a connection are those of an HTTP/1
// request without TLS.
func isHTTP1(begin []byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO"}, string(begin))
}

// replyPlainHTTP sends an error response to a client that uses HTTP on a port for
// HTTPS.
func (h *handshaker) replyPlainHTTP(c net.Conn) {
	_ = c.SetWriteDeadline(time.Now().Add(h.writeTimeout)) // if it fails, so does Write
	const text = "This is a port for HTTPS.\n"
	r := http.Response{
		StatusCode: http.StatusBadRequest, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		Body:   io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}
	_ = r.Write(c)
}
