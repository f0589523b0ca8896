package proxy

import (
	"strings"
	"testing"
)

func TestFraming_NoticesWhatCanBeReadInTwoWays(t *testing.T) {
	for said, faulty := range map[string]bool{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello":                                                    false,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":                                       false,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":                  true,
		"POST / HTTP/1.1\ntransfer-ENCODING: chunked\nHost: a\ncontent-length:5\n\n":                                      true,
		"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloPOST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": false,
		"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n":                                                           true,
		"POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\nPOST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n":               false,
		"GET / HTTP/1.1\r\nX-Content-Length: 5\r\nX: Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n":    false,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n":                         false,
		"GET / HTTP/1.1\r\n\r\nPRI * HTTP/2.0\r\n\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n":             true,
	} {
		for _, piece := range []int{1, 2, 7, 4096} {
			var f framing
			for rest := []byte(said); len(rest) > 0; {
				n := min(piece, len(rest))
				f.see(rest[:n])
				rest = rest[n:]
			}
			if f.faulty.Load() != faulty {
				t.Errorf("%q in pieces of %d: faulty %v; want %v", said, piece, f.faulty.Load(), faulty)
			}
		}
	}
}

func TestFraming_DropsEmptyLinesOnlyAtTheBeginning(t *testing.T) {
	var f framing
	for _, c := range []struct{ said, want string }{
		{"\r\n", ""}, {"\r", ""}, {"\n\r\nGET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n"}, {"\r\n", "\r\n"}, {"\r\nbody", "\r\nbody"},
	} {
		p := []byte(c.said)
		n := f.skip(p)
		f.see(p[:n])
		if got := string(p[:n]); got != c.want {
			t.Errorf("%q is read as %q; want %q", c.said, got, c.want)
		}
	}
}

func TestFraming_EndsTheConnection(t *testing.T) {
	f := opened(t, forwarding("echo", "", ""))
	both := "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
	for _, said := range []string{
		both,
		both + "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /x HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		w := f.dial(said)
		answer, body := w.status(200)
		w.ended()
		if !answer.Close || strings.Contains(body, `"Content-Length": `) {
			t.Errorf("%q: %v, %s; want the end of the connection, and no length forwarded", said, answer.Header, body)
		}
	}
	f.dial("\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n").status(200)
}
