package proxy

import (
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/weir-proxy/weir/proxy/config"
)

// A clientIPResolver finds out who asks, behind proxies that are trusted to say so.
type clientIPResolver struct {
	trusted *bart.Lite
	header  string // canonical name of the field that trusted proxies append to
	prefix  int    // IPv6 addresses are counted by their first so many bits
}

func newClientIPResolver(c config.ClientIP) clientIPResolver {
	trusted := new(bart.Lite)
	for _, p := range c.TrustedProxies {
		trusted.Insert(p.Masked())
	}
	return clientIPResolver{trusted: trusted, header: c.Header, prefix: c.IPv6Prefix}
}

// A client is who asks.
type client struct {
	addr        netip.Addr
	network     netip.Prefix // the client as limits count it
	trustedPeer bool         // the peer is a trusted proxy
}

// resolve learns the client's address. The peer is the client unless it is a
// trusted proxy; then the header is walked from its right end, past trusted
// addresses, to the first that is not. When an entry on that way is no address,
// or all are trusted, the last address that can be believed is the client: a
// client can never choose an address by what it sends.
func (a clientIPResolver) resolve(x *exchange) {
	client := unmapAddr(x.in.peer.Addr())
	x.client.trustedPeer = a.trusted.Contains(client)
	if x.client.trustedPeer {
		client = a.walk(client, x.in.header.Values(a.header))
	}
	x.client.addr = client
	x.client.network = a.network(client)
}

// walk goes from the right end of lines to the left as long as what it meets is
// a trusted proxy's address.
func (a clientIPResolver) walk(last netip.Addr, lines []string) netip.Addr {
	for i := len(lines) - 1; i >= 0; i-- {
		rest := lines[i]
		for rest != "" {
			comma := strings.LastIndexByte(rest, ',')
			entry := strings.Trim(rest[comma+1:], " \t")
			rest = rest[:max(comma, 0)]
			if entry == "" {
				continue // a list may have empty elements (RFC 9110 section 5.6.1)
			}
			addr, ok := hop(entry)
			if !ok {
				return last
			}
			last = addr
			if !a.trusted.Contains(addr) {
				return last
			}
		}
	}
	return last
}

// hop reads one entry: an address, in brackets or not, with a port or not.
func hop(s string) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return unmapAddr(addr), true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return unmapAddr(ap.Addr()), true
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]")); err == nil {
			return unmapAddr(addr), true
		}
	}
	return netip.Addr{}, false
}

// unmapAddr folds the spellings of one address: ::ffff:1.2.3.4 is 1.2.3.4, and a
// zone is dropped.
func unmapAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// network is what limits count addr under.
func (a clientIPResolver) network(addr netip.Addr) netip.Prefix {
	bits := addr.BitLen()
	if addr.Is6() {
		bits = a.prefix
	}
	p, _ := addr.Prefix(bits) // the zero Prefix for an address that is not valid
	return p
}
