package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"unicode"

	"github.com/go-chi/chi/v5/middleware"
	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/config"
)

func trustedResolver(prefixes ...string) clientIPResolver {
	c := config.ClientIP{Header: "X-Forwarded-For", IPv6Prefix: 64}
	for _, p := range prefixes {
		c.TrustedProxies = append(c.TrustedProxies, netip.MustParsePrefix(p))
	}
	return newClientIPResolver(c)
}

func resolvedBy(a clientIPResolver, peer string, lines ...string) *exchange {
	x := &exchange{in: inbound{peer: netip.MustParseAddrPort(peer), header: http.Header{"X-Forwarded-For": lines}}}
	a.resolve(x)
	return x
}

func TestAddress(t *testing.T) {
	a := trustedResolver("10.0.0.0/8", "2001:db8:ffff::/48")
	for _, c := range []struct {
		name, peer string
		lines      []string
		want       string
	}{
		{"no proxy", "192.0.2.1:1", nil, "192.0.2.1"},
		{"an untrusted peer is not believed", "192.0.2.1:1", []string{"198.51.100.7"}, "192.0.2.1"},
		{"a trusted peer is", "10.0.0.1:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"only the right end counts", "10.0.0.1:1", []string{"203.0.113.9, 198.51.100.7"}, "198.51.100.7"},
		{"past trusted proxies", "10.0.0.1:1", []string{"203.0.113.9, 198.51.100.7, 10.1.2.3"}, "198.51.100.7"},
		{"over several lines", "10.0.0.1:1", []string{"203.0.113.9", "198.51.100.7", "10.1.2.3"}, "198.51.100.7"},
		{"all trusted: the farthest", "10.0.0.1:1", []string{"10.9.9.9, 10.1.2.3"}, "10.9.9.9"},
		{"trusted peer says nothing", "10.0.0.1:1", nil, "10.0.0.1"},
		{"garbage ends the walk", "10.0.0.1:1", []string{"198.51.100.7, what, 10.1.2.3"}, "10.1.2.3"},
		{"empty entries say nothing", "10.0.0.1:1", []string{"198.51.100.7, ,", ""}, "198.51.100.7"},
		{"with a port", "10.0.0.1:1", []string{"198.51.100.7:4711"}, "198.51.100.7"},
		{"IPv6", "10.0.0.1:1", []string{"2001:db8::7"}, "2001:db8::7"},
		{"IPv6 in brackets with a port", "10.0.0.1:1", []string{"[2001:db8::7]:4711"}, "2001:db8::7"},
		{"IPv6 in brackets", "10.0.0.1:1", []string{"[2001:db8::7]"}, "2001:db8::7"},
		{"mapped IPv4 is IPv4", "[::ffff:192.0.2.1]:1", nil, "192.0.2.1"},
		{"mapped trusted proxy is trusted", "[::ffff:10.0.0.1]:1", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"a zone is dropped", "[fe80::1%eth0]:1", nil, "fe80::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := resolvedBy(a, c.peer, c.lines...).client.addr.String(); got != c.want {
				t.Errorf("client = %s; want %s", got, c.want)
			}
		})
	}
}

func TestAddress_CountsIPv6ByNetwork(t *testing.T) {
	a := trustedResolver()
	one, two := resolvedBy(a, "[2001:db8:1:2::7]:1"), resolvedBy(a, "[2001:db8:1:2:ffff::8]:1")
	if one.client.network != two.client.network || one.client.network.String() != "2001:db8:1:2::/64" {
		t.Errorf("networks %s and %s; want both 2001:db8:1:2::/64", one.client.network, two.client.network)
	}
	if got := resolvedBy(a, "192.0.2.1:1").client.network.String(); got != "192.0.2.1/32" {
		t.Errorf("IPv4 network = %s; want the single address", got)
	}
}

func TestAddress_ZeroAddresserTrustsNobody(t *testing.T) {
	if x := resolvedBy(trustedResolver(), "10.0.0.1:1", "198.51.100.7"); x.client.trustedPeer || x.client.addr.String() != "10.0.0.1" {
		t.Errorf("client = %s, trusted %v; want the peer, untrusted", x.client.addr, x.client.trustedPeer)
	}
}

// What is blank elsewhere is not in HTTP: an entry of it is none that can be read,
// and what stands before it is not believed.
func TestAddress_OtherBlanksAreNone(t *testing.T) {
	if x := resolvedBy(trustedResolver("10.0.0.0/8"), "10.0.0.1:1", "198.51.100.7", "\u0085"); x.client.addr.String() != "10.0.0.1" {
		t.Errorf("client = %s; want the peer", x.client.addr)
	}
}

// FuzzAddress holds our walk against chi's: wherever chi believes an address, so
// do we, and it is the same one.
func FuzzAddress(f *testing.F) {
	f.Add("198.51.100.7, 10.1.2.3", "203.0.113.9")
	f.Add("", ",,")
	f.Add("::ffff:10.0.0.1", "[::1]:1")
	f.Add("::", "\u0085")
	f.Fuzz(func(t *testing.T, first, second string) {
		if !httpguts.ValidHeaderFieldValue(first) || !httpguts.ValidHeaderFieldValue(second) {
			return // no downstream lets those in
		}
		if strings.ContainsFunc(first+second, func(c rune) bool { return c > '~' && unicode.IsSpace(c) }) {
			return // chi skips them like blanks; in HTTP they are part of an entry, which is no address then
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.0.0.1:1"
		r.Header["X-Forwarded-For"] = []string{first, second}
		var theirs netip.Addr
		middleware.ClientIPFromXFF("10.0.0.0/8")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			theirs = middleware.GetClientIPAddr(r.Context())
		})).ServeHTTP(httptest.NewRecorder(), r)
		ours := resolvedBy(trustedResolver("10.0.0.0/8"), r.RemoteAddr, first, second).client.addr
		if theirs.IsValid() && ours != theirs {
			t.Errorf("X-Forwarded-For %q, %q: client = %s; chi says %s", first, second, ours, theirs)
		}
	})
}
