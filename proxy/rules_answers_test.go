package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
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
		if !strings.HasPrefix(got, "http/1.1 103 ") || !strings.Contains(got, "\r\nlink: </x>\r\n") || strings.Contains(got, "content-length") || strings.Contains(got, "transfer-encoding") {
			t.Errorf("got %q; want 103 with its field, and without a length", got)
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
