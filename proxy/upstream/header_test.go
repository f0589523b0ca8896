package upstream

import (
	"bufio"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
)

const okEmpty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// forwardedHead sends request through a proxy and returns the head that the target
// sees: its first line, and its fields by lower-case name.
func forwardedHead(t *testing.T, change func(*Request), request string) (string, map[string][]string) {
	t.Helper()
	url, heads := startReplying(t, okEmpty)
	h := startProxy(t, poolOf(t, url), func(asked *Request, _ received) {
		if change != nil {
			change(asked)
		}
	})
	if res, _ := h.ask(t, request); res.StatusCode != http.StatusOK {
		t.Fatalf("status %s", res.Status)
	}
	first, rest, _ := strings.Cut(await.Value(t, heads, "request"), "\r\n")
	fields := map[string][]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(rest), "\r\n") {
		name, value, _ := strings.Cut(line, ": ")
		name = strings.ToLower(name)
		fields[name] = append(fields[name], value)
	}
	return first, fields
}

func trusted(t *Request) { t.TrustedPeer = true }

func TestRequest_ForwardedFields(t *testing.T) {
	const ip = "127.0.0.1"
	for name, c := range map[string]struct {
		change func(*Request)
		lines  string            // added to the request
		want   map[string]string // joined by |; "" means absent
	}{
		"nothing invented": {nil, "", map[string]string{
			"host": "api.example", "user-agent": "", "accept-encoding": "", "connection": "", "te": "", "forwarded": "",
			"content-length": "", "transfer-encoding": "", "x-request-id": "",
		}},
		"end-to-end fields stay, order and all": {nil, "X-Phone: +86 1\r\nX-A: 1\r\nX-A: 2\r\nUser-Agent: curl\r\nAccept-Encoding: br\r\nCookie: a=b\r\nAuthorization: Bearer x\r\n", map[string]string{
			"x-phone": "+86 1", "x-a": "1|2", "user-agent": "curl", "accept-encoding": "br", "cookie": "a=b", "authorization": "Bearer x",
		}},
		"connection fields go": {nil, "Connection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\nProxy-Authorization: Basic x\r\nProxy: http://evil\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n", map[string]string{
			"connection": "", "x-mine": "", "keep-alive": "", "proxy-connection": "", "te": "", "proxy-authorization": "", "proxy": "", "upgrade": "", "http2-settings": "",
		}},
		"TE trailers is passed on as ours": {nil, "TE: trailers, gzip\r\nConnection: TE\r\n", map[string]string{"te": "trailers", "connection": "TE"}},
		"an allowed upgrade is alone in Connection": {func(t *Request) { t.WebSocket = true }, "TE: trailers\r\nConnection: TE, X-Mine, upgrade\r\nX-Mine: 1\r\nUpgrade: WebSocket\r\n", map[string]string{
			"connection": "Upgrade", "upgrade": "WebSocket", "te": "", "x-mine": "",
		}},
		"Connection cannot strip what we add": {func(t *Request) { t.RequestID = "r1"; t.Set = http.Header{"X-Phone-E164": {"+861"}} },
			"Connection: X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto, X-Real-Ip, Via, X-Request-Id, X-Phone-E164, Host\r\n", map[string]string{
				"x-forwarded-for": ip, "x-forwarded-host": "api.example", "x-forwarded-proto": "http", "x-real-ip": ip,
				"via": "1.1 weir-test", "x-request-id": "r1", "x-phone-e164": "+861", "host": "api.example",
			}},
		"a stranger's word is replaced": {nil,
			"X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Prefix: /x\r\nX-Real-IP: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n", map[string]string{
				"x-forwarded-for": ip, "x-forwarded-host": "api.example", "x-forwarded-proto": "http", "x-forwarded-port": "", "x-forwarded-prefix": "",
				"x-real-ip": ip, "forwarded": "",
			}},
		"a trusted peer's word is continued": {func(t *Request) { trusted(t); t.Client = netip.MustParseAddr("6.6.6.6") },
			"X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Host: shop.example\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 443\r\nForwarded: for=6.6.6.6\r\n", map[string]string{
				"x-forwarded-for": "1.1.1.1, 6.6.6.6, " + ip, "x-forwarded-host": "shop.example", "x-forwarded-proto": "https", "x-forwarded-port": "443",
				"x-real-ip": "6.6.6.6", "forwarded": "for=6.6.6.6",
			}},
		"Forwarded is replaced": {func(t *Request) { t.Forwarded = true }, "Forwarded: for=6.6.6.6\r\n", map[string]string{
			"forwarded": "for=127.0.0.1;host=api.example;proto=http",
		}},
		"Forwarded is continued": {func(t *Request) { trusted(t); t.Forwarded = true }, "Forwarded: for=6.6.6.6\r\n", map[string]string{
			"forwarded": "for=6.6.6.6|for=127.0.0.1;host=api.example;proto=http",
		}},
		"underscores are no disguise": {func(t *Request) { trusted(t); t.RequestID = "r1"; t.Set = http.Header{"X-Phone-E164": {"+861"}} },
			"X_Forwarded_For: 6.6.6.6\r\nx_real_ip: 6.6.6.6\r\nX_Request-Id: evil\r\nX-Phone_E164: +1\r\nX_Other: stays\r\nX.Forwarded.For: 6.6.6.6\r\nX-Phone.E164: +1\r\n", map[string]string{
				"x.forwarded.for": "", "x-phone.e164": "", "x_forwarded_for": "", "x_real_ip": "", "x_request-id": "", "x-phone_e164": "", "x_other": "stays", "x-phone-e164": "+861",
			}},
		"Via is continued": {nil, "Via: 1.0 fred, 1.1 weir-tester\r\nVia: 1.1 other\r\n", map[string]string{"via": "1.0 fred, 1.1 weir-tester|1.1 other|1.1 weir-test"}},
		"our id and fields replace the client's": {func(t *Request) { t.RequestID = "r1"; t.Set = http.Header{"X-A": {"ours"}} }, "X-Request-Id: theirs\r\nX-A: theirs\r\nX-A: too\r\n", map[string]string{
			"x-request-id": "r1", "x-a": "ours",
		}},
		"Max-Forwards of GET is not ours": {nil, "Max-Forwards: 0\r\n", map[string]string{"max-forwards": "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, got := forwardedHead(t, c.change, "GET /p HTTP/1.1\r\nHost: api.example\r\n"+c.lines+"\r\n")
			for field, want := range c.want {
				if values := strings.Join(got[field], "|"); values != want {
					t.Errorf("%s: %q, want %q", field, values, want)
				}
			}
		})
	}
}

func TestRequest_TargetIsUnchanged(t *testing.T) {
	for _, target := range []string{
		"/", "/a%2Fb", "/a%2fb;x=1,2", "/a^b|c{d}\"", "/a?x=1;y=2&z=%zz&&=", "/a?", "/%E4%BD%A0?q=%e4", "/a?b?c", "/a//b/../c",
	} {
		first, _ := forwardedHead(t, nil, "GET "+target+" HTTP/1.1\r\nHost: a\r\n\r\n")
		want := target
		if strings.ContainsAny(target, `^|{}"`) {
			want = "/a%5Eb%7Cc%7Bd%7D%22" // net/http's spelling, in which it was matched
		}
		if first != "GET "+want+" HTTP/1.1" {
			t.Errorf("target sees %q, want %s", first, want)
		}
	}
	first, _ := forwardedHead(t, nil, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
	if first != "OPTIONS * HTTP/1.1" {
		t.Errorf("target sees %q", first)
	}
	first, _ = forwardedHead(t, func(asked *Request) { asked.Path = "/a^b" }, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
	if first != "GET /a^b HTTP/1.1" {
		t.Errorf("target sees %q, want the request's spelling", first)
	}
}

func TestRequest_ExpectIsDroppedInHTTP10(t *testing.T) {
	_, got := forwardedHead(t, nil, "POST /x HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na")
	if got["expect"] != nil || got["via"][0] != "1.0 weir-test" {
		t.Errorf("target sees Expect %q, Via %q", got["expect"], got["via"])
	}
}

func TestRequest_MaxForwardsIsDecremented(t *testing.T) {
	_, got := forwardedHead(t, nil, "OPTIONS /x HTTP/1.1\r\nHost: a\r\nMax-Forwards: 3\r\n\r\n")
	if got["max-forwards"][0] != "2" {
		t.Errorf("Max-Forwards %q, want 2", got["max-forwards"])
	}
}

func TestForward_RejectsInvalidRequests(t *testing.T) {
	h := startProxy(t, mustPool(t, Config{Upstream: config.Upstream{Echo: true}, Pseudonym: "weir-test"}), func(asked *Request, r received) {
		if path := firstOf(r, "X-Path"); path != "" {
			asked.Path = path
		}
		if firstOf(r, "X-Query") != "" {
			asked.RawQuery = "a b"
		}
	})
	for _, c := range []struct {
		request string
		want    ResultKind
	}{
		{"OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n", MaxForwards},
		{"TRACE / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n", MaxForwards},
		{"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 fred (a, b), 1.1 weir-test\r\n", LoopDetected},
		{"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 fred\r\nVia: 1.1 weir-test (x)\r\n", LoopDetected},
		{"GET / HTTP/1.1\r\nHost: a\r\nX-Path: *\r\n", BadRequest},
		{"GET / HTTP/1.1\r\nHost: a\r\nX-Path: //a\r\n", BadRequest},
		{"GET / HTTP/1.1\r\nHost: a\r\nX-Path: /a HTTP/1.1\r\n", BadRequest},
		{"GET / HTTP/1.1\r\nHost: a\r\nX-Path: a\r\n", BadRequest},
		{"GET / HTTP/1.1\r\nHost: a\r\nX-Query: 1\r\n", BadRequest},
		{"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: \xff\r\n", BadRequest},
	} {
		h.dial(t, c.request+"\r\n")
		got := h.result(t)
		if got.Kind != c.want || got.Err == nil || got.HeaderSent || got.Target != "" {
			t.Errorf("%q: result %+v, want kind %d before any target", c.request, got, c.want)
		}
	}
	pool := mustPool(t, Config{Upstream: config.Upstream{Echo: true}})
	defer pool.Close()
	connect := &Request{Method: http.MethodConnect, Path: "/", Host: "a:1", Fields: new(http1.Fields), Proto: "HTTP/2.0"}
	if got := pool.Forward(t.Context(), connect, NewHTTP2Sink(t.Context(), silent{http.Header{}})); got.Kind != BadRequest || got.HeaderSent || got.Target != "" {
		t.Errorf("CONNECT: result %+v", got)
	}
}

func TestForwarded_Element(t *testing.T) {
	for _, c := range []struct{ peer, host, want string }{
		{"10.0.0.1:9", "a.example", "for=10.0.0.1;host=a.example;proto=https"},
		{"10.0.0.1:9", "a.example:8443", `for=10.0.0.1;host="a.example:8443";proto=https`},
		{"[2001:db8::1%eth0]:9", `a"b\`, `for="[2001:db8::1]";host="a\"b\\";proto=https`},
		{"[::ffff:10.0.0.1]:9", "", `for=10.0.0.1;host="";proto=https`},
		{"", "a", "for=unknown;host=a;proto=https"},
	} {
		asked := &Request{Host: c.host, Scheme: "https", Forwarded: true}
		if c.peer != "" {
			asked.Peer = netip.MustParseAddrPort(c.peer)
		}
		h := http.Header{}
		setForwarded(&forwardedFields{}, asked, &fieldWriter{to: mapHeader(h)})
		if got := h.Get("Forwarded"); got != c.want {
			t.Errorf("peer %s: %s, want %s", c.peer, got, c.want)
		}
	}
}

func TestForwarded_UnknownPeer(t *testing.T) {
	asked := &Request{Host: "a", Scheme: "http", Fields: fieldsFromHeader(http.Header{"X-Forwarded-For": {"6.6.6.6"}})}
	h := http.Header{}
	setPeer(&forwardedFields{}, asked, &fieldWriter{to: mapHeader(h)})
	if spoofed>>http1.XRealIP&1 == 0 || h["X-Real-Ip"] != nil || h["X-Forwarded-For"] != nil {
		t.Errorf("header %v, want no address", h)
	}
}

// What the operator sets or takes out, the client cannot say: not in another
// spelling, not behind the body, and not by Connection.
func TestRequest_SetRemoveAndHost(t *testing.T) {
	url := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, name := range []string{"X-Set", "X_set", "X-Gone", "X_gone", "User-Agent", "X-Kept"} {
			if r.Header[name] != nil {
				w.Header().Add("Seen", name+"="+r.Header.Get(name))
			}
		}
		for name := range r.Trailer {
			w.Header().Add("Seen", "trailer "+name)
		}
		w.Header().Set("X-Host", r.Host+" "+r.Header.Get("X-Forwarded-Host"))
	})
	h := startProxy(t, poolOf(t, url), func(asked *Request, _ received) {
		asked.Set = http.Header{"X-Set": {"ours"}, "X-Gone": {}, "User-Agent": {}}
		asked.SetHost = "inner.example"
	})
	res, _ := h.ask(t, "POST / HTTP/1.1\r\nHost: outer.example\r\nX-Set: theirs\r\nX_Set: theirs\r\nX-Gone: 1\r\nX_Gone: 1\r\nUser-Agent: x\r\nX-Kept: 1\r\n"+
		"Connection: X-Set\r\nTransfer-Encoding: chunked\r\nTrailer: X-Set, X-Gone, X-Sum\r\n\r\n0\r\nX-Set: late\r\nX-Gone: late\r\nX-Sum: 1\r\n\r\n")
	seen := res.Header["Seen"]
	if len(seen) != 3 || seen[0] != "X-Set=ours" || seen[1] != "X-Kept=1" || seen[2] != "trailer X-Sum" {
		t.Errorf("target sees %q", seen)
	}
	if got := res.Header.Get("X-Host"); got != "inner.example outer.example" {
		t.Errorf("target is asked for, and told of, %q", got)
	}
}

// headOf returns the fields of a head in which only these lines were added.
func headOf(add func(h mapHeader)) http.Header {
	h := http.Header{}
	add(mapHeader(h))
	return h
}

// Requests of one connection differ in everything on which the fields about their peer depend.
func TestPeerFields_FollowTheRequest(t *testing.T) {
	changes := []func(*Request){
		func(*Request) {},
		func(r *Request) { r.Client = netip.MustParseAddr("6.6.6.6") },
		func(*Request) {},
		func(r *Request) { r.Peer = netip.MustParseAddrPort("6.6.6.6:1") },
		func(*Request) {},
		func(r *Request) { r.Scheme = "https" },
		func(*Request) {},
		trusted,
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
		func(r *Request) {
			r.Host, r.Client, r.Peer = "e", netip.MustParseAddr("7.7.7.7"), netip.MustParseAddrPort("7.7.7.7:1")
		},
	}
	var want []http.Header
	url, heads := startReplying(t, okEmpty)
	p := startProxy(t, poolOf(t, url), func(asked *Request, _ received) {
		changes[len(want)](asked)
		trust := trustedForwarded(asked)
		h := headOf(func(h mapHeader) {
			w := &fieldWriter{to: h, set: asked.Set}
			setPeer(&trust, asked, w)
			setForwarded(&trust, asked, w)
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
	case "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip": // see setPeer and setForwarded
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
	if !http1.UnusualName(name) {
		return false
	}
	return isReserved(http.CanonicalHeaderKey(hyphenated(name)), t)
}
