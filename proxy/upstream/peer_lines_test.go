package upstream

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
)

// headOf returns the fields of a head in which only these lines were added.
func headOf(add func(h mapHeader)) http.Header {
	h := http.Header{}
	add(mapHeader(h))
	return h
}

func TestPeerLines_EqualSetPeerAndSetHost(t *testing.T) {
	for _, peer := range []string{"10.0.0.1", "255.255.255.255", "::ffff:10.0.0.1", "::1", "2001:db8::1", "fe80::1%eth0"} {
		for _, scheme := range []string{"http", "https"} {
			addr := netip.MustParseAddr(peer)
			asked := &Request{Scheme: scheme, Host: "a.example:8080", Client: addr.Unmap(), Peer: netip.AddrPortFrom(addr, 1)}
			want := headOf(func(h mapHeader) {
				setPeer(&forwardedFields{}, asked, &fieldWriter{to: h})
				setHost(&forwardedFields{}, asked, &fieldWriter{to: h})
			})
			got := headOf(func(h mapHeader) { h.AddBlock(new(peerLines).next(asked).block) })
			if !maps.EqualFunc(got, want, slices.Equal) || len(got) != 4 {
				t.Errorf("%s, %s: %v, want %v", peer, scheme, got, want)
			}
		}
	}
	for _, asked := range []*Request{{Scheme: "a\nb", Host: "a"}, {Scheme: "http", Host: "a\nb"}} {
		asked.Client = netip.MustParseAddr("::1")
		if got := new(peerLines).next(asked); got != nil {
			t.Errorf("an invalid line: %+v", got)
		}
	}
}

// Requests of one connection differ in everything on which the lines depend.
func TestPeerLines_FollowTheRequest(t *testing.T) {
	changes := []func(*Request){
		func(*Request) {},
		func(r *Request) { r.Scheme = "https" },
		func(r *Request) { r.Client = netip.MustParseAddr("6.6.6.6") },
		func(r *Request) {
			r.Client, r.Peer = netip.MustParseAddr("6.6.6.6"), netip.MustParseAddrPort("[::ffff:6.6.6.6]:1")
		},
		trusted,
		func(r *Request) { r.Set = http.Header{"X-Real-Ip": {"ours"}} },
		func(r *Request) { r.Set = http.Header{"X-Forwarded-Proto": nil, "Via": {"ours"}} },
		func(r *Request) { r.Scheme = "" },
		func(r *Request) { r.Client, r.Peer = netip.Addr{}, netip.AddrPort{} },
		func(*Request) {},
		func(r *Request) { r.Host = "b" },
		func(r *Request) { r.Host = "b" },
		func(r *Request) { r.Host = strings.Repeat("c", maxLinesHost) },
		func(r *Request) { r.Host = strings.Repeat("d", maxLinesHost+1) },
	}
	for i := range 2 * maxLinesHosts { // more than are kept, each one twice
		changes = append(changes, func(r *Request) { r.Host = fmt.Sprint("host-", i/2) })
	}
	changes = append(changes, func(r *Request) {
		r.Host, r.Client, r.Peer = "e", netip.MustParseAddr("7.7.7.7"), netip.MustParseAddrPort("7.7.7.7:1")
	})
	var want []http.Header
	url, heads := startReplying(t, okEmpty)
	p := startProxy(t, poolOf(t, url), func(asked *Request, _ received) {
		changes[len(want)](asked)
		trust := forwardedFields{}
		if asked.TrustedPeer {
			trust = trustedForwarded(asked.Fields)
		}
		h := headOf(func(h mapHeader) {
			w := &fieldWriter{to: h, set: asked.Set}
			setPeer(&trust, asked, w)
			setHost(&trust, asked, w)
			w.addString(http1.Via, "1.1 weir-test")
		})
		for name, values := range asked.Set {
			for _, value := range values {
				h.Add(name, value)
			}
		}
		want = append(want, h)
	})
	c, in := p.dial(t, "")
	for i := range changes {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("request %d: %v, %v", i, res, err)
		}
		sent, err := http.ReadRequest(bufio.NewReader(strings.NewReader(await.Value(t, heads, "request"))))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"X-Real-Ip", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Via"} {
			if got := sent.Header[name]; !slices.Equal(got, want[i][name]) {
				t.Errorf("request %d: %s %q, want %q", i, name, got, want[i][name])
			}
		}
	}
}

func TestStripSpoofed_EqualsIsSpoofed(t *testing.T) {
	names := []string{
		"X-A", "x_a", "X.A", "Host", "Accept", "Via", "Expect", "Max-Forwards", "Forwarded", "X-Forwarded", "X-Forwarded-", "x-forwarded-port",
		"X-Forwarded-For", "X_Forwarded_For", "X-Forwarded-Host", "x-forwarded-proto", "X-Real-IP", "x_real_ip", "HTTP2-Settings", "Http2_Settings",
		"Proxy", "proxy", "X-Request-ID", "x.request.id", "X-Set", "x_set", "Cookie", "X-Forwarded.Port",
	}
	for i := range 16 {
		asked := &Request{Fields: new(http1.Fields), TrustedPeer: i&1 != 0, Proto: "HTTP/1.1", Length: int64(i >> 3)}
		if i&2 != 0 {
			asked.RequestID = "r1"
		}
		if i&4 != 0 {
			asked.Set = map[string][]string{"X-Set": {"1"}, "Accept": nil}
		}
		var want []string
		for _, name := range names {
			asked.Fields.Add(name, "1")
			canonical := http.CanonicalHeaderKey(name)
			if !isSpoofed(canonical, asked) && (canonical != "Expect" || asked.Length != 0) && canonical != "Max-Forwards" {
				want = append(want, name)
			}
		}
		f := forwarding{request: asked, maxForwards: 1}
		f.stripSpoofed()
		var got []string
		for line := range asked.Fields.All() {
			got = append(got, line.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
}

// isSpoofed reports whether the client must not set this field, because Weir or the
// operator sets it. name is in canonical form. The result is also true for a name that
// differs from such a name only in characters other than letters and digits, since many
// servers turn all of these into underscores. X-Forwarded-* may be set by a trusted
// peer.
func isSpoofed(name string, t *Request) bool {
	switch name {
	case "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip": // see setPeer, setHost and setForwarded
		return true
	case "Http2-Settings", // belongs to an upgrade to h2c
		"Proxy": // CGI servers turn it into the variable HTTP_PROXY ("httpoxy", CVE-2016-5385)
		return true
	case "X-Request-Id":
		return t.RequestID != ""
	}
	if strings.HasPrefix(name, "X-Forwarded-") {
		return !t.TrustedPeer
	}
	if t.Set[name] != nil {
		return true
	}
	if isHyphenated(name) {
		return false
	}
	return isReserved(http.CanonicalHeaderKey(hyphenated(name)), t)
}
