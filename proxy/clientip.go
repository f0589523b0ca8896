package proxy

import (
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// A clientIPResolver determines the client's address, behind trusted proxies by a header field such
// as X-Forwarded-For.
type clientIPResolver struct {
	trusted *bart.Lite // nil if there is none
	header  string     // canonical name of the field to which trusted proxies append
	prefix  int        // limits count IPv6 addresses by a prefix of this many bits
}

func newClientIPResolver(c config.ClientIP) clientIPResolver {
	a := clientIPResolver{header: c.Header, prefix: c.IPv6Prefix}
	if len(c.TrustedProxies) > 0 {
		a.trusted = new(bart.Lite)
	}
	for _, p := range c.TrustedProxies {
		a.trusted.Insert(p.Masked())
	}
	return a
}

// A client is the sender of a request.
type client struct {
	addr        netip.Addr
	network     netip.Prefix // the address, or its IPv6 prefix, by which limits count
	trustedPeer bool         // the peer of the connection is a trusted proxy
}

// resolve sets the client's address. It is the peer's address unless the peer is a trusted proxy.
// Otherwise the header is read from right to left up to the first address that is not trusted. If
// an entry on the way is not an address, or all are trusted, the last trusted address read is used.
// A client can therefore never choose its address by what it sends.
func (r *clientIPResolver) resolve(x *exchange) {
	c := &x.client
	c.addr = unmapAddr(x.in.peer.Addr())
	c.trustedPeer = r.trusted != nil && r.trusted.Contains(c.addr)
	if c.trustedPeer {
		c.addr = r.lastUntrusted(c.addr, x.in.header.Values(r.header))
	}
	c.addr = limiter.ClientAddr(c.addr) // a proxy is trusted by the address that it has itself
	c.network = r.network(c.addr)
}

// lastUntrusted reads the entries of lines from right to left while they are addresses of trusted proxies,
// and returns the last address read. It returns last if there is none.
func (r *clientIPResolver) lastUntrusted(last netip.Addr, lines []string) netip.Addr {
	for i := len(lines) - 1; i >= 0; i-- {
		rest := lines[i]
		for rest != "" {
			comma := strings.LastIndexByte(rest, ',')
			entry := strings.Trim(rest[comma+1:], " \t")
			rest = rest[:max(comma, 0)]
			if entry == "" {
				continue // a list may have empty elements (RFC 9110 section 5.6.1)
			}
			addr, ok := parseForwardedFor(entry)
			if !ok {
				return last
			}
			last = addr
			if !r.trusted.Contains(addr) {
				return last
			}
		}
	}
	return last
}

// parseForwardedFor parses one entry: an address with or without brackets, with or without a port.
func parseForwardedFor(s string) (netip.Addr, bool) {
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

// unmapAddr returns the canonical form of an address: ::ffff:1.2.3.4 becomes 1.2.3.4, and a zone is
// removed.
func unmapAddr(a netip.Addr) netip.Addr {
	return a.Unmap().WithZone("")
}

// network returns the prefix by which limits count addr.
func (r *clientIPResolver) network(addr netip.Addr) netip.Prefix {
	if !addr.Is6() {
		return netip.PrefixFrom(addr, addr.BitLen())
	}
	p, _ := addr.Prefix(r.prefix)
	return p
}
