package upstream

import (
	"net/netip"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
)

const (
	// maxLinesHost is the length of the longest host that is kept with a connection.
	maxLinesHost = 255
	// maxLinesHosts is the number of hosts after which a connection is one over which a proxy
	// sends the requests of many: no host is kept with it any more.
	maxLinesHosts = 8
)

// peerLines are the lines that setPeer and setHost write for a client that is the peer
// itself. They are the same for most requests of a connection, so that they are rendered
// once and kept with it.
type peerLines struct {
	peer   netip.Addr
	scheme string
	host   string // "" if the line of setHost is not among them
	hosts  int    // hosts of the connection so far
	block  http1.FieldBlock
}

// peerLines returns the lines that setPeer and setHost would write for the request of f,
// or nil if they cannot be kept: they also depend on what a trusted peer has sent, or the
// operator may set one of them, or the client does not use HTTP/1.1.
func (f *forwarding) peerLines() *peerLines {
	t := f.request
	if f.http1.duplex == nil || t.TrustedPeer || len(t.Set) > 0 || !t.Client.IsValid() || t.Client != t.Peer.Addr().Unmap() {
		return nil
	}
	state := f.http1.duplex.Exchange().ConnState()
	kept, ok := (*state).(*peerLines)
	if !ok {
		kept = new(peerLines)
	}
	if kept.peer != t.Client || kept.scheme != t.Scheme || kept.host != t.Host && kept.hosts < maxLinesHosts {
		if kept = kept.next(t); kept != nil {
			*state = kept
		}
	}
	return kept
}

// next returns the lines for t, of the same connection as p. It returns nil if they cannot
// be sent.
func (p *peerLines) next(t *Request) *peerLines {
	next := &peerLines{peer: t.Client, scheme: t.Scheme, hosts: p.hosts + 1}
	addr := t.Client.WithZone("").String()
	lines := []string{"X-Real-Ip", addr, "X-Forwarded-For", addr, "X-Forwarded-Proto", t.Scheme}
	if len(t.Host) <= maxLinesHost && t.Host != "" && next.hosts < maxLinesHosts {
		next.host = strings.Clone(t.Host)
		lines = append(lines, "X-Forwarded-Host", next.host)
	}
	var err error
	if next.block, err = http1.NewFieldBlock(lines...); err != nil {
		return nil
	}
	return next
}
