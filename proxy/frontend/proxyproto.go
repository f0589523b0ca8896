package frontend

import (
	"net"
	"net/netip"
	"time"

	"github.com/gaissmai/bart"
	"github.com/pires/go-proxyproto"
)

// proxyProtocol is l for clients that come through load balancers which say who
// they are in the PROXY protocol, version 1 or 2. Every connection from trusted
// must begin with it, within the time for a header; on any other it is not
// HTTP, and answered with 400. So nobody else can choose an address.
func proxyProtocol(l net.Listener, trusted []netip.Prefix, within time.Duration) net.Listener {
	if len(trusted) == 0 {
		return l
	}
	balancers := new(bart.Lite)
	for _, p := range trusted {
		balancers.Insert(p.Masked())
	}
	return &proxyproto.Listener{
		Listener:          l,
		ReadHeaderTimeout: within,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			if peer, err := netip.ParseAddrPort(o.Upstream.String()); err == nil && balancers.Contains(unmap(peer.Addr())) {
				return proxyproto.REQUIRE, nil
			}
			return proxyproto.SKIP, nil
		},
	}
}

// unmap folds the spellings of one address: ::ffff:1.2.3.4 is 1.2.3.4, and a zone
// is dropped.
func unmap(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
