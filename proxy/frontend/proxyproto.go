package frontend

import (
	"net"
	"net/netip"
	"time"

	"github.com/gaissmai/bart"
	"github.com/pires/go-proxyproto"
)

// proxyProtocol wraps l so that the client address is read from a PROXY protocol
// header, version 1 or 2, on connections from trusted load balancers. The header is
// mandatory there, and must arrive within the timeout. On all other connections it is
// not accepted: it is an invalid HTTP request, which gets 400. Otherwise any client
// could choose its address.
func proxyProtocol(l net.Listener, trusted []netip.Prefix, timeout time.Duration) net.Listener {
	if len(trusted) == 0 {
		return l
	}
	balancers := new(bart.Lite)
	for _, p := range trusted {
		balancers.Insert(p.Masked())
	}
	return &proxyproto.Listener{
		Listener:          l,
		ReadHeaderTimeout: timeout,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			if peer, err := netip.ParseAddrPort(o.Upstream.String()); err == nil && balancers.Contains(unmap(peer.Addr())) {
				return proxyproto.REQUIRE, nil
			}
			return proxyproto.SKIP, nil
		},
	}
}

// unmap normalizes an address: ::ffff:1.2.3.4 becomes 1.2.3.4, and a zone is removed.
func unmap(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
