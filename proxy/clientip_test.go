package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-chi/chi/v5/middleware"
	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
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
		{"IPv4 behind NAT64 is IPv4", "[64:ff9b::192.0.2.1]:1", nil, "192.0.2.1"},
		{"also told by a proxy", "10.0.0.1:1", []string{"64:ff9b::c633:6407"}, "198.51.100.7"},
		{"a private address behind NAT64 is none", "[64:ff9b::10.0.0.1]:1", []string{"198.51.100.7"}, "64:ff9b::a00:1"},
		{"loopback behind NAT64 is none", "[64:ff9b::127.0.0.1]:1", nil, "64:ff9b::7f00:1"},
		{"another prefix", "[64:ff9b:1::192.0.2.1]:1", nil, "64:ff9b:1::c000:201"},
		{"a longer one", "[64:ff9b::1:192.0.2.1]:1", nil, "64:ff9b::1:c000:201"},
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
	if one, two := resolvedBy(a, "[64:ff9b::c000:201]:1"), resolvedBy(a, "[64:ff9b::c000:202]:1"); one.client.network.String() != "192.0.2.1/32" || two.client.network.String() != "192.0.2.2/32" {
		t.Errorf("networks %s and %s behind NAT64; want those of IPv4", one.client.network, two.client.network)
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
	f.Add("64:ff9b::c000:201", "10.0.0.1")
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
		if theirs = limiter.ClientAddr(theirs); theirs.IsValid() && ours != theirs {
			t.Errorf("X-Forwarded-For %q, %q: client = %s; chi says %s", first, second, ours, theirs)
		}
	})
}

// A client behind NAT64 is the client of its IPv4 address to limits, lists, overrides, bans and the operator.
func TestAddress_BehindNAT64(t *testing.T) {
	w := newProxy(t, `
client_ip: {trusted_proxies: [192.0.2.1], header: X-Real-Ip}
lists:
  denied: {key: client_ip, values: [198.51.100.0/28, "64:ff9b::203.0.113.99"], action: deny}
  office: {key: client_ip, values: ["198.51.100.77"], action: bypass}
routes:
  - {name: a, match: {path: /a}, respond: {body: ok}, lists: [denied, office], limits: [{key: client_ip, rate: 1/1h, overrides: {"64:ff9b::198.51.100.66": 2/1h}}]}
`)
	from := func(addr string) string { return "X-Real-Ip: 64:ff9b::" + addr }
	w.sends(200, "GET", "/a", from("203.0.113.1"))
	w.sends(200, "GET", "/a", from("203.0.113.2"))
	w.sends(429, "GET", "/a", from("203.0.113.1"))
	w.sends(429, "GET", "/a", "X-Real-Ip: 203.0.113.2")
	w.sends(403, "GET", "/a", from("198.51.100.5"))
	w.sends(403, "GET", "/a", from("203.0.113.99"))
	w.sendsAll([]int{200, 200, 429}, "GET", "/a", from("198.51.100.66"))
	w.sendsAll(times(2, 200), "GET", "/a", from("198.51.100.77"))
	w.sends(200, "GET", "/a", from("10.0.0.1"))
	w.sends(429, "GET", "/a", from("10.0.0.2")) // which cannot be, and counts as IPv6
	if s, err := w.standing("client_ip=64:ff9b::203.0.113.1"); err != nil || len(s.Limits) != 1 || s.Limits[0].Windows[0].Used == 0 {
		t.Errorf("the operator sees %+v, %v; want that nothing is left", s, err)
	}
	ban := directive.Directive{Network: netip.MustParsePrefix("203.0.113.0/26"), Until: time.Now().Add(time.Hour)}
	w.SetDirectives(directive.NewSet([]directive.Directive{ban}, time.Now()))
	w.sends(403, "GET", "/a", from("203.0.113.7"))
	if s, err := w.standing("client_ip=64:ff9b::203.0.113.7"); err != nil || len(s.Networks) != 1 {
		t.Errorf("the operator sees %+v, %v; want the ban", s, err)
	}
	if _, _, err := w.NetworkOf(view.KeyQuery{Pairs: []view.KeyPair{{Key: "client_ip", Value: "64:ff9b::203.0.113.0/120"}}}); err == nil || !strings.Contains(err.Error(), "write the network of IPv4") {
		t.Errorf("a network that nobody counts by can be banned: %v", err)
	}
	if _, problems := key.ParseList(&key.Spec{Name: "client_ip", From: key.Origin{Source: key.ClientIP}}, key.Lines("64:ff9b::/96\n64:ff9b::203.0.113.0/120\n64:ff9b::10.0.0.0/104\n64:ff9b:1::/48\n")); len(problems) != 2 {
		t.Errorf("problems %v; want two", problems)
	}
}

// plainly is a request of HTTP/1.1.
const plainly = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// Whom a trusted load balancer names in the PROXY protocol is the client, in the log
// and for the upstream.
func TestAddress_OfAClientBehindABalancer(t *testing.T) {
	f := startServer(t, forwardYAML("echo", "listen: {proxy_protocol: [127.0.0.0/8]}", ""))
	_, body := f.dial("PROXY TCP4 203.0.113.7 192.0.2.1 4711 80\r\n" + plainly).WantStatus(200)
	if !strings.Contains(body, `"203.0.113.7"`) {
		t.Errorf("%s; want the client that the balancer names", body)
	}
	if line := f.line("request"); line["client"] != "203.0.113.7" {
		t.Errorf("logged %v", line)
	}
}

// What Weir does not believe, no upstream gets to believe: the field of the client's address from a peer that is not
// trusted.
func TestAddress_FieldOfOthersIsNotForwarded(t *testing.T) {
	got := make(chan http.Header, 1)
	url := startUpstream(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	for header, own := range map[string]string{"CF-Connecting-IP": "", "X-Real-IP": "198.51.100.7", "X-Client": ""} {
		for peer, kept := range map[string]string{"10.0.0.1:1": "203.0.113.9", "198.51.100.7:1": own} {
			w := newProxy(t, "client_ip: {trusted_proxies: [10.0.0.0/8], header: "+header+"}\nroutes: [{match: {path: /*}, upstream: '"+url+"'}]\n")
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = peer
			r.Header.Set(header, "203.0.113.9")
			w.ServeHTTP(httptest.NewRecorder(), r)
			if sent := (<-got).Get(header); sent != kept {
				t.Errorf("%s from %s: the upstream got %q, want %q", header, peer, sent, kept)
			}
		}
	}
}
