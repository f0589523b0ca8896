package upstream

import (
	"net/http"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
)

// tunnel copies bytes in both directions after the protocol was switched, until both
// have ended.
func (f *forwarding) tunnel(fields *http1.Fields) error {
	client, early, err := f.to.SwitchProtocols(f.upgrade, fields)
	if err != nil {
		return err
	}
	target, unread := f.switched()
	f.pool.groups.Tunnels.Run(http1.TunnelEnd{Conn: client, Unread: early}, http1.TunnelEnd{Conn: target, Unread: unread})
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
	if len(wish) == 1 && strings.EqualFold(wish[0], "websocket") && containsToken(t.Fields.Values("Connection"), "upgrade") {
		return wish[0]
	}
	return ""
}
