package proxy

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"net"
	"net/http"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/upstream"
)

var (
	// errNoWebSocket reports that a route does not allow WebSocket.
	errNoWebSocket = errors.New("WebSocket not allowed")
	// errNoTunnel reports that an upstream has not accepted WebSocket as it must.
	errNoTunnel = errors.New("upstream has not switched to WebSocket")
)

// keyField and acceptField are the fields of the handshake that have no meaning in HTTP/2.
const (
	keyField    = "Sec-WebSocket-Key"
	acceptField = "Sec-WebSocket-Accept"
)

// beginWebSocket makes an extended CONNECT (RFC 8441) what it would be in HTTP/1.1: a GET request
// with an upgrade. All stages then treat both alike.
func (d *http2Downstream) beginWebSocket() {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	d.webSocketKey = base64.StdEncoding.EncodeToString(nonce[:])
	d.x.request.Method, d.x.in.length = http.MethodGet, 0
	d.Fields.Drop(keyField)
	d.Fields.Add("Upgrade", "websocket")
	d.Fields.Add("Connection", "Upgrade")
	d.Fields.Add(keyField, d.webSocketKey)
}

// forwardWebSocket forwards a request that beginWebSocket has changed.
func (d *http2Downstream) forwardWebSocket(p *upstream.Pool, t *upstream.Request) upstream.Result {
	if !t.WebSocket {
		return upstream.Result{Kind: upstream.BadRequest, Err: errNoWebSocket}
	}
	return p.Forward(d.Context(), t, d)
}

// SwitchProtocols implements upstream.Sink. It checks the handshake in place of the client, which
// has sent no key.
func (d *http2Downstream) SwitchProtocols(protocol string, f *http1.Fields) (net.Conn, []byte, error) {
	const guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" // RFC 6455 section 1.3
	sum := sha1.Sum([]byte(d.webSocketKey + guid))
	if accept, _ := f.Lookup(acceptField); d.webSocketKey == "" || accept != base64.StdEncoding.EncodeToString(sum[:]) {
		return nil, nil, errNoTunnel
	}
	f.Drop(acceptField)
	return d.Stream.SwitchProtocols(protocol, f)
}
