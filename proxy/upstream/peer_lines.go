package upstream

import (
	"net/netip"

	"github.com/weir-proxy/weir/proxy/http1"
)

// peerLines are the lines that setPeer writes for a client that is the peer itself.
// They are the same for all requests of a connection, so that they are rendered once
// and kept with it.
type peerLines struct {
	peer   netip.Addr
	scheme string
	block  http1.FieldBlock
}

// peerLines returns the lines that setPeer would write for the request of f, or nil if
// they cannot be kept: they also depend on what a trusted peer has sent, or the operator
// may set one of them, or the client does not use HTTP/1.1.
func (f *forwarding) peerLines() *peerLines {
	t := f.request
	if f.http1.duplex == nil || t.TrustedPeer || len(t.Set) > 0 || !t.Client.IsValid() || t.Client != t.Peer.Addr().Unmap() {
		return nil
	}
	state := f.http1.duplex.Exchange().ConnState()
	kept, ok := (*state).(*peerLines)
	if !ok || kept.peer != t.Client || kept.scheme != t.Scheme {
		if kept = newPeerLines(t.Client, t.Scheme); kept != nil {
			*state = kept
		}
	}
	return kept
}

// newPeerLines renders the lines. It returns nil if they cannot be sent.
func newPeerLines(peer netip.Addr, scheme string) *peerLines {
	addr := peer.WithZone("").String()
	block, err := http1.NewFieldBlock("X-Real-Ip", addr, "X-Forwarded-For", addr, "X-Forwarded-Proto", scheme)
	if err != nil {
		return nil
	}
	return &peerLines{peer, scheme, block}
}
