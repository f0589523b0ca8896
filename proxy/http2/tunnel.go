package http2

import (
	"errors"
	"net"

	"github.com/weir-proxy/weir/proxy/http1"
)

// errNoUpgrade reports that the request is not an extended CONNECT.
var errNoUpgrade = errors.New("HTTP/2 connection cannot be handed over")

// SwitchProtocols implements upstream.Sink.
func (s *Stream) SwitchProtocols(string, *http1.Fields) (net.Conn, []byte, error) {
	return nil, nil, errNoUpgrade
}
