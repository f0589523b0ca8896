package proxy

import (
	"strings"
	"testing"
)

func TestRules_RequestLines(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		host := "|Host: a||"
		over.obeyed(t, []rule{
			{"plain", rawLines("GET /x?y HTTP/1.1" + host), 200, false, "GET /x?y HTTP/1.1\r\nHost: a\r\n", ""},
			{"absolute target wins over Host", rawLines("GET http://b.example/x HTTP/1.1" + host), 200, false, "GET /x HTTP/1.1\r\nHost: b.example\r\n", "Host: a"},
			{"8000 bytes of path", rawLines("GET /" + strings.Repeat("a", 8000) + " HTTP/1.1" + host), 200, false, "aaa", ""},
			{"path too long", rawLines("GET /" + strings.Repeat("a", 17000) + " HTTP/1.1" + host), 414, false, "", ""},
			{"query too long", rawLines("GET /?" + strings.Repeat("a", 17000) + " HTTP/1.1" + host), 414, false, "", ""},
			{"longer than any header", rawLines("GET /" + strings.Repeat("a", 100_000) + " HTTP/1.1" + host), 414, true, "", ""},
			{"no request line", "garbage\r\n\r\n", 400, true, "", ""},
			{"no version", rawLines("GET /" + host), 400, true, "", ""},
			{"a version that is none", rawLines("GET / HTTP/x" + host), 400, true, "", ""},
			{"a target that is none", rawLines("GET a%zz HTTP/1.1" + host), 400, true, "", ""},
			{"another major version", rawLines("GET / HTTP/3.0" + host), 505, true, "", ""},
			{"version misspelt", rawLines("GET / http/1.1" + host), 400, true, "", ""},
			{"version with more", rawLines("GET / HTTP/1.1x" + host), 400, true, "", ""},
			{"blank in the target", rawLines("GET /a b HTTP/1.1" + host), 400, true, "", ""},
			{"method that is no token", rawLines("GE(T / HTTP/1.1" + host), 400, true, "", ""},
			{"target that is no path", rawLines("GET x HTTP/1.1" + host), 400, true, "", ""},
			{"star with GET", rawLines("GET * HTTP/1.1" + host), 400, true, "", ""},
			{"tunnel", rawLines("CONNECT b:80 HTTP/1.1|Host: b:80||"), 405, true, "", ""},
			{"tunnel to a path", rawLines("CONNECT /x HTTP/1.1" + host), 405, true, "", ""},
			{"tunnel, and what is behind it", rawLines("CONNECT b:80 HTTP/1.1|Host: b:80||GET /x HTTP/1.1" + host), 405, true, "", ""},
			{"tunnel with a body", rawLines("CONNECT b:80 HTTP/1.1|Host: b:80|Content-Length: 4||ab"), 405, true, "", ""},
			{"absolute target without a path", rawLines("GET http://b.example HTTP/1.1" + host), 200, false, "GET / HTTP/1.1\r\nHost: b.example\r\n", ""},
			{"absolute target with a query only", rawLines("GET http://b.example?x HTTP/1.1" + host), 200, false, "GET /?x HTTP/1.1\r\nHost: b.example\r\n", ""},
			{"absolute target, scheme in capitals", rawLines("GET HTTP://b.example/x HTTP/1.1" + host), 200, false, "GET /x HTTP/1.1\r\nHost: b.example\r\n", ""},
			{"absolute target without a host", rawLines("GET http:///x HTTP/1.1" + host), 400, true, "", ""},
			{"absolute target with somebody", rawLines("GET http://u@b/x HTTP/1.1" + host), 400, true, "", ""},
			{"another scheme", rawLines("GET ftp://b.example/x HTTP/1.1" + host), 400, true, "", ""},
			{"fragment", rawLines("GET /x#1 HTTP/1.1" + host), 400, true, "", ""},
			{"fragment in the query", rawLines("GET /x?user=1#1 HTTP/1.1" + host), 400, true, "", ""},
			{"fragment of an absolute target", rawLines("GET http://b.example/x#1 HTTP/1.1" + host), 400, true, "", ""},
			{"escaped, it is none", rawLines("GET /x%23?user=1%231 HTTP/1.1" + host), 200, false, "GET /x%23?user=1%231 HTTP/1.1", ""},
			{"query byte for byte", rawLines("GET /?a=%41;b=%zz&&c='\"<> HTTP/1.1" + host), 200, false, "GET /?a=%41;b=%zz&&c='\"<> HTTP/1.1", ""},
			{"empty query", rawLines("GET /? HTTP/1.1" + host), 200, false, "GET /? HTTP/1.1", ""},
			{"unknown method", rawLines("BREW /x HTTP/1.1" + host), 200, false, "BREW /x HTTP/1.1", ""},
		})
	})
}

func TestRules_AnotherSchemeThanIsSpoken(t *testing.T) {
	transport(plainTransport).obeyed(t, []rule{
		{"https where it is not spoken", rawLines("GET https://b.example/x HTTP/1.1|Host: b.example||"), 400, false, "", ""},
	})
}

func TestRules_Hosts(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		over.obeyed(t, []rule{
			{"none", rawLines("GET / HTTP/1.1||"), 400, true, "", ""},
			{"an empty one", rawLines("GET / HTTP/1.1|Host:||"), 400, true, "", ""},
			{"an empty one beside an absolute target", rawLines("GET http://b.example/ HTTP/1.1|Host:||"), 400, true, "", ""},
			{"two", rawLines("GET / HTTP/1.1|Host: a|Host: b||"), 400, true, "", ""},
			{"two in one", rawLines("GET / HTTP/1.1|Host: a, b||"), 400, true, "", ""},
			{"with a path", rawLines("GET / HTTP/1.1|Host: a/b||"), 400, true, "", ""},
			{"with somebody", rawLines("GET / HTTP/1.1|Host: u@a||"), 400, true, "", ""},
			{"with a blank", rawLines("GET / HTTP/1.1|Host: a b||"), 400, true, "", ""},
			{"with a port", rawLines("GET / HTTP/1.1|Host: a:80||"), 200, false, "Host: a:80\r\n", ""},
			{"IPv6", rawLines("GET / HTTP/1.1|Host: [::1]:80||"), 200, false, "Host: [::1]:80\r\n", ""},
		})
	})
}

func TestRules_Fields(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		get := "GET / HTTP/1.1|Host: a|"
		over.obeyed(t, []rule{
			{"blank before the first field", rawLines("GET / HTTP/1.1| X: 1|Host: a||"), 400, true, "", ""},
			{"blank before a colon", rawLines(get + "X : 1||"), 400, true, "", ""},
			{"no colon", rawLines(get + "X||"), 400, true, "", ""},
			{"no name", rawLines(get + ": 1||"), 400, true, "", ""},
			{"name that is no token", rawLines(get + "X(: 1||"), 400, true, "", ""},
			{"folded line", rawLines(get + "X: 1|  2||"), 400, true, "", ""},
			{"carriage return in a value", rawLines(get + "X: 1\r2||"), 400, true, "", ""},
			{"control character in a value", rawLines(get + "X: \x01||"), 400, true, "", ""},
			{"NUL in a value", rawLines(get + "X: 1\x002||"), 400, true, "", ""},
			{"same name, in order", rawLines(get + "X: 2|Y: 0|X: 1||"), 200, false, "X: 2\r\nY: 0\r\nX: 1\r\n", ""},
			{"header too long", rawLines(get + "X: " + strings.Repeat("a", 100_000) + "||"), 431, true, "", ""},
			{"fields too many", rawLines(get + strings.Repeat("X: 1|", 20_000) + "|"), 431, true, "", ""},
			{"left alone", rawLines(get + "X-Own: a, b|Cache-Control: no-transform|Authorization: Basic x||"), 200, false, "X-Own: a, b\r\n", ""},
		})
	})
}

func TestRules_FieldsOfOneConnection(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		get := "GET / HTTP/1.1|Host: a|"
		over.obeyed(t, []rule{
			{"named", rawLines(get + "Connection: X-A, x-b|X-A: 1|X-B: 2|X-C: 3||"), 200, false, "X-C: 3\r\n", "x-a: 1"},
			{"named in a second line", rawLines(get + "Connection: keep-alive|Connection: X-A|X-A: 1||"), 200, false, "Host: a", "x-a"},
			{"known", rawLines(get + "Proxy-Connection: x|Keep-Alive: x||"), 200, false, "Host: a", "keep-alive"},
			{"TE", rawLines(get + "TE: gzip||"), 200, false, "Host: a", "\r\nte:"},
			{"for proxies", rawLines(get + "Proxy-Authorization: Basic secret||"), 200, false, "Host: a", "secret"},
			{"what we say cannot be stripped", rawLines(get + "Connection: X-Forwarded-For|X-Forwarded-For: 6.6.6.6||"), 200, false, "X-Forwarded-For: 127.0.0.1\r\n", "6.6.6.6"},
			{"nor what frames", rawLines("POST / HTTP/1.1|Host: a|Content-Length: 2|Connection: close, Content-Length||hi"), 200, true, "Content-Length: 2\r\n", ""},
			{"nor the host", rawLines(get + "Connection: Host||"), 200, false, "Host: a\r\n", ""},
			{"nothing named", rawLines(get + "Connection: , keep-alive,, TE||"), 200, false, "Host: a", ""},
			{"upgrade to HTTP/2", rawLines(get + "Connection: Upgrade, HTTP2-Settings|Upgrade: h2c|HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA||"), 200, false, "Host: a", "h2c"},
			{"upgrade to WebSocket where it is not allowed", rawLines(get + "Connection: Upgrade|Upgrade: websocket||"), 200, false, "Host: a", "upgrade"},
			{"100-continue", rawLines("POST / HTTP/1.1|Host: a|Expect: 100-continue|Content-Length: 0||"), 200, false, "Host: a", ""},
			{"what else is expected", rawLines("POST / HTTP/1.1|Host: a|Expect: miracles|Content-Length: 0||"), 417, true, "", ""},
		})
	})
}

func TestRules_Hops(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		over.obeyed(t, []rule{
			{"via, in order", rawLines("GET / HTTP/1.1|Host: a|Via: 1.0 fred|Via: 1.1 bob||"), 200, false, "Via: 1.0 fred\r\nVia: 1.1 bob\r\nVia: 1.1 weir-", ""},
			{"via HTTP/1.0", rawLines("GET / HTTP/1.0|Host: a|Connection: keep-alive||"), 200, false, "Via: 1.0 weir-", ""},
			{"OPTIONS, one hop less", rawLines("OPTIONS /x HTTP/1.1|Host: a|Max-Forwards: 5||"), 200, false, "Max-Forwards: 4\r\n", ""},
			{"TRACE, one hop less", rawLines("TRACE /x HTTP/1.1|Host: a|Max-Forwards: 1||"), 200, false, "Max-Forwards: 0\r\n", ""},
			{"TRACE, no hop left", rawLines("TRACE /x HTTP/1.1|Host: a|Max-Forwards: 0||"), 501, false, "", ""},
			{"GET has no such bound", rawLines("GET /x HTTP/1.1|Host: a|Max-Forwards: 0||"), 200, false, "Max-Forwards: 0\r\n", ""},
			{"who asks, from somebody not trusted", rawLines("GET / HTTP/1.1|Host: a|X-Forwarded-For: 6.6.6.6|Forwarded: for=6.6.6.6|X-Real-IP: 6.6.6.6||"), 200, false, "X-Forwarded-For: 127.0.0.1\r\n", "6.6.6.6"},
		})
	})
}

// A request that has come through this process before is refused here, however its Via
// says so, and the upstream is not asked again.
func TestRules_Loops(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, fine)
		f := over.opened(t, forwardYAML(s.url, "", ""))
		f.dial(plainly).WantStatus(200)
		_, via, _ := strings.Cut(s.last(t), "Via: 1.1 ")
		own, _, _ := strings.Cut(via, "\r\n")
		if own == "" {
			t.Fatal("there is no Via")
		}
		for _, via := range []string{"Via: 1.1 " + own, "Via: 1.0 fred, 1.1 " + own, "Via: 1.0 fred|Via: HTTP/2 " + own + " (x, y)", "Via: 1.1 (" + own + ") bob,1.1 " + own + ",1.1 jim"} {
			if _, body := f.dial(rawLines("GET / HTTP/1.1|Host: a|" + via + "||")).WantStatus(508); body == "" {
				t.Errorf("%s: there are no words", via)
			}
		}
		f.dial(rawLines("GET / HTTP/1.1|Host: a|Via: 1.1 " + own + "x, 1.0 (" + own + ")||")).WantStatus(200)
		if said := s.last(t); !strings.Contains(said, own+"x") || len(s.seen) > 0 {
			t.Errorf("the upstream was asked %q, and %d more", said, len(s.seen))
		}
	})
}
