package limiter

import "net/netip"

// ClientAddr returns the address by which a client counts: IPv4 for an address that stands for one, which is
// ::ffff:192.0.2.1, and 64:ff9b::192.0.2.1 of a translator (NAT64, RFC 6052) unless that must not have it, as 10.0.0.1;
// and none has a zone.
func ClientAddr(a netip.Addr) netip.Addr {
	if a = a.Unmap(); a.Is4() {
		return a
	}
	a = a.WithZone("")
	if v4, ok := translated(a); ok && v4.IsGlobalUnicast() && !v4.IsPrivate() {
		return v4
	}
	return a
}

// Subscriber returns the ClientAddr of an address, or its /64 network, which is what one subscriber has in IPv6. It is the zero
// Prefix if the address is not valid.
func Subscriber(a netip.Addr) netip.Prefix {
	a = ClientAddr(a)
	p, _ := a.Prefix(min(a.BitLen(), 64)) // fails only if a is not valid
	return p
}

// IsTranslated reports whether p is a network of a translator, by which no client counts.
func IsTranslated(p netip.Prefix) bool {
	v4, ok := translated(p.Addr())
	return ok && p.Bits() >= nat64Bits && !v4.IsPrivate()
}

// nat64Bits is the length of the well-known prefix of translators, 64:ff9b::. Of 64:ff9b:1::/48, for local use,
// nobody knows where the IPv4 address is.
const nat64Bits = 96

// translated returns the IPv4 address in one with the prefix of translators.
func translated(a netip.Addr) (v4 netip.Addr, ok bool) {
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[nat64Bits/8:])), [nat64Bits / 8]byte(b[:]) == [nat64Bits / 8]byte{1: 0x64, 2: 0xff, 3: 0x9b}
}
