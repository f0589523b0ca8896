package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

func TestRules_OptionsNoHopLeft(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, fine)
		f := over.opened(t, forwardYAML(s.url, "", "limits: [{key: global, rate: 9/1h}]"))
		for _, said := range []string{"OPTIONS /x HTTP/1.1|Host: a|Max-Forwards: 0||", "OPTIONS * HTTP/1.1|Host: a||"} {
			f.dial(rawLines(said)).WantStatus(200)
		}
		s.notAsked(t)
	})
}

func TestRules_AnswersThatAreNone(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		for _, answer := range []string{
			"nonsense\r\n\r\n",
			"HTTP/1.1 20 OK\r\n\r\n",
			"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
			"HTTP/0.9 200 OK\r\nContent-Length: 2\r\n\r\nok",
			"HTTP/3.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
			"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\n\r\nhello",
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		} {
			s := startRecording(t, answer+"Connection: close")
			_, body := over.opened(t, forwardYAML(s.url, "", "")).dial(plainly).WantStatus(502)
			if strings.Contains(body, s.url) || strings.Contains(body, "malformed") {
				t.Errorf("%q: the client reads %s; the cause is for the log", answer, body)
			}
		}
	})
}

func TestRules_NoAnswerInTime(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		let := make(chan bool)
		url := startUpstream(t, func(http.ResponseWriter, *http.Request) { <-let })
		defer close(let)
		f := over.opened(t, "upstreams: {slow: {targets: ['"+url+"'], timeouts: {response: 100ms}}}\nroutes: [{match: {path: /*}, upstream: slow}]\n")
		f.dial(plainly).WantStatus(504)
	})
}

func TestRules_WhatMayHaveHappenedIsNotTriedAgain(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, "Connection: close")
		f := over.opened(t, forwardYAML(s.url, "", ""))
		f.dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").WantStatus(502)
		s.last(t)
		select {
		case got := <-s.seen:
			t.Errorf("asked again: %q", got)
		case <-time.After(50 * time.Millisecond):
		}
	})
}

func TestRules_DateIsAdded(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		answer, _ := over.opened(t, forwardYAML(startRecording(t, fine).url, "", "")).dial(plainly).WantStatus(200)
		if _, err := http.ParseTime(answer.Header.Get("Date")); err != nil {
			t.Errorf("Date %q: %v", answer.Header.Get("Date"), err)
		}
		old := "Sat, 01 Jan 2000 00:00:00 GMT"
		answer, _ = over.opened(t, forwardYAML(startRecording(t, strings.Replace(fine, "\r\n", "\r\nDate: "+old+"\r\n", 1)).url, "", "")).dial(plainly).WantStatus(200)
		if got := answer.Header.Values("Date"); len(got) != 1 || got[0] != old {
			t.Errorf("Date %q; want the upstream's", got)
		}
	})
}

func TestRules_FieldsOfTheUpstreamsConnection(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, "HTTP/1.1 200 OK\r\nConnection: X-A\r\nX-A: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\nX-B: 2\r\nContent-Length: 2\r\n\r\nok")
		answer, _ := over.opened(t, forwardYAML(s.url, "", "")).dial(plainly).WantStatus(200)
		for _, name := range []string{"X-A", "Keep-Alive", "Upgrade", "Connection"} {
			if got := answer.Header.Get(name); got != "" {
				t.Errorf("%s: %s reaches the client", name, got)
			}
		}
		if answer.Header.Get("X-B") != "2" {
			t.Error("X-B does not reach the client")
		}
	})
}

func TestRules_EarlyHints(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"+fine)
		w := over.opened(t, forwardYAML(s.url, "", "")).dial(plainly)
		if hint, err := http.ReadResponse(w.Reader, nil); err != nil || hint.StatusCode != 103 || hint.Header.Get("Link") != "</x>" {
			t.Errorf("got %v, %v; want 103 and its field", hint, err)
		}
		w.WantStatus(200)
	})
}

func TestRules_ContinueIsAskedForByWhoWantsTheBody(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wanted" {
				io.Copy(w, r.Body)
				return
			}
			w.WriteHeader(http.StatusForbidden)
		})
		f := over.opened(t, forwardYAML(url, "", ""))
		w := f.dial(rawLines("POST /wanted HTTP/1.1|Host: a|Expect: 100-continue|Content-Length: 5||"))
		if next, err := http.ReadResponse(w.Reader, nil); err != nil || next.StatusCode != 100 {
			t.Fatalf("got %v, %v; want 100", next, err)
		}
		w.Send("hello")
		if _, body := w.WantStatus(200); body != "hello" {
			t.Errorf("got %q; want the body back", body)
		}
		f.dial(rawLines("POST /not HTTP/1.1|Host: a|Expect: 100-continue|Content-Length: 5||")).WantStatus(403)
	})
}

func TestRules_Ranges(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "x.txt", time.Unix(1, 0), strings.NewReader("0123456789"))
		})
		f := over.opened(t, forwardYAML(url, "", ""))
		answer, body := f.dial(rawLines("GET / HTTP/1.1|Host: a|Range: bytes=2-4||")).WantStatus(206)
		if body != "234" || answer.Header.Get("Content-Range") != "bytes 2-4/10" {
			t.Errorf("got %q, %v; want three bytes of ten", body, answer.Header)
		}
		f.dial(rawLines("GET / HTTP/1.1|Host: a|Range: bytes=20-||")).WantStatus(416)
		f.dial(rawLines("GET / HTTP/1.1|Host: a|If-Modified-Since: Thu, 01 Jan 1970 00:00:01 GMT||")).WantStatus(304)
	})
}

// A client that does not read slows the upstream down instead of filling memory.
func TestRules_FlowControlReachesTheUpstream(t *testing.T) {
	written := make(chan int, 1)
	url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		piece, n := make([]byte, 64<<10), 0
		for {
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			if _, err := w.Write(piece); err != nil {
				written <- n
				return
			}
			n += len(piece)
		}
	})
	s := startServer(t, forwardYAML(url, cleartext, "")).speaks()
	s.asks(1, request("GET", "/")...)
	if n := await.Value(t, written, "the upstream's timeout"); n > 32<<20 {
		t.Errorf("the upstream could write %d MiB for a client that reads nothing", n>>20)
	}
}
