package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// Each side is spoken to in our version, whatever the other speaks.
func TestRules_VersionsAreOurOwn(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		over.obeyed(t, []rule{
			{"a client of HTTP/1.0", rawLines("GET /x HTTP/1.0|Host: a|Connection: keep-alive||"), 200, false, "GET /x HTTP/1.1\r\n", "keep-alive"},
			{"a minor version to come", rawLines("GET /x HTTP/1.9|Host: a||"), 400, true, "", ""},
		})
		s := startRecording(t, "HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
		w := over.opened(t, forwardYAML(s.url, "", "")).dial("")
		for range 2 {
			w.Send(plainly)
			if answer, body := w.WantStatus(200); answer.Proto != "HTTP/1.1" || answer.Close || body != "ok" {
				t.Errorf("%s, %v, %q; want HTTP/1.1, which goes on", answer.Proto, answer.Close, body)
			}
		}
	})
}

// HTTP/1.0 has no upgrade, so it means nothing there, also where it is allowed.
func TestRules_NoUpgradeInHTTP10(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, fine)
		f := over.opened(t, forwardYAML(s.url, "", "websocket: true"))
		f.dial(rawLines("GET / HTTP/1.0|Host: a|Connection: Upgrade|Upgrade: websocket||")).WantStatus(200)
		if got := strings.ToLower(s.last(t)); strings.Contains(got, "upgrade") {
			t.Errorf("forwarded as %q; want no upgrade", got)
		}
	})
}

// What an upstream writes wrongly is put right if there is one reading of it, and not passed on
// otherwise.
func TestRules_FieldsOfAnswers(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		for _, c := range []struct {
			name, field string
			status      int
			want        string // of X-A
		}{
			{"folded line", "X-A: 1\r\n  2\r\n", 502, ""},
			{"blank around a value", "X-A: \t1 \r\n", 200, "1"},
			{"blank before a colon", "X-A : 1\r\n", 200, "1"},
			{"blank before a colon that frames", "Transfer-Encoding : chunked\r\nX-A: 1\r\n", 502, ""},
			{"no colon", "X-A\r\n", 502, ""},
			{"name that is no token", "X(A: 1\r\n", 502, ""},
			{"carriage return in a value", "X-A: 1\r2\r\n", 502, ""},
			{"NUL in a value", "X-A: 1\x002\r\n", 502, ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				s := startRecording(t, "HTTP/1.1 200 OK\r\n"+c.field+"Content-Length: 2\r\n\r\nok")
				w := over.opened(t, forwardYAML(s.url, "", "")).dial(plainly)
				w.TB = t
				answer, _ := w.WantStatus(c.status)
				if got := answer.Header.Get("X-A"); got != c.want {
					t.Errorf("X-A is %q; want %q", got, c.want)
				}
			})
		}
	})
}

// Information before an answer has no body, so it has no length either.
func TestRules_InformationHasNoLength(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nContent-Length: 5\r\n\r\n"+fine)
		w := over.opened(t, forwardYAML(s.url, "", "")).dial(plainly)
		var head []string
		for range 20 {
			line, err := w.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if head = append(head, line); line == "\r\n" {
				break
			}
		}
		got := strings.ToLower(strings.Join(head, ""))
		if !strings.HasPrefix(got, "http/1.1 103 ") || strings.Contains(got, "content-length") || strings.Contains(got, "transfer-encoding") {
			t.Errorf("got %q; want 103 without a length", got)
		}
		if _, body := w.WantStatus(200); body != "ok" {
			t.Errorf("got %q; want ok", body)
		}
	})
}

// A field that is for one connection is none for the next as a trailer either.
func TestRules_NamedTrailers(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		chunked := "POST / HTTP/1.1|Host: a|Connection: X-Sum|Trailer: X-Sum|Transfer-Encoding: chunked||5|hello|0|X-Sum: 42||"
		over.obeyed(t, []rule{{"of a request", rawLines(chunked), 200, false, "hello", "x-sum"}})
		s := startRecording(t, "HTTP/1.1 200 OK\r\nConnection: X-Sum\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 42\r\n\r\n")
		answer, _ := over.opened(t, forwardYAML(s.url, "", "")).dial(plainly).WantStatus(200)
		if answer.Trailer.Get("X-Sum") != "" {
			t.Errorf("the client has trailers %v; want none", answer.Trailer)
		}
	})
}

// A header is no longer than it may be over HTTP/2 either, in how many frames it
// may come.
func TestHTTP2_HeaderTooLong(t *testing.T) {
	s := startServer(t, forwardYAML("echo", cleartext, "")).speaks()
	block := encode(request("GET", "/", "x-a", strings.Repeat("a", 200_000))...)
	first := true
	for len(block) > 0 {
		piece := block[:min(len(block), 16<<10)]
		block = block[len(piece):]
		var err error
		if first {
			err = s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: piece, EndStream: true, EndHeaders: len(block) == 0})
		} else {
			err = s.WriteContinuation(1, len(block) == 0, piece)
		}
		if first = false; err != nil {
			break // it has hung up already
		}
	}
	for {
		frame, err := s.ReadFrame()
		if err != nil {
			return // the connection has ended
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if got := f.PseudoValue("status"); got != "431" {
				t.Errorf("status %s; want 431, or the end", got)
			}
			return
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return
		}
	}
}

// Whoever sends nothing but questions about the connection has each answered, and
// others are served meanwhile.
func TestHTTP2_AFloodOfPingsDisturbsNobody(t *testing.T) {
	f := startServer(t, forwardYAML("echo", cleartext, ""))
	flood := f.speaks()
	var writing = make(chan error, 1)
	go func() {
		for range 20_000 {
			if err := flood.WritePing(false, [8]byte{}); err != nil {
				writing <- err
				return
			}
			if err := flood.WriteSettings(); err != nil {
				writing <- err
				return
			}
		}
		writing <- nil
	}()
	for range 20 {
		s := f.speaks()
		s.asks(1, request("GET", "/x")...)
		if got := s.status(1); got != "200" {
			t.Errorf("status %s; want 200", got)
		}
		s.conn.Close()
	}
	flood.conn.Close()
	<-writing
	if answer, err := http.Get("http://" + f.addr + "/x"); err != nil || answer.StatusCode != 200 {
		t.Errorf("got %v, %v", answer, err)
	} else {
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
}
