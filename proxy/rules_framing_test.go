package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/test/await"
)

func TestRules_LengthsOfRequests(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		post := "POST / HTTP/1.1|Host: a|"
		chunked := post + "Transfer-Encoding: chunked||"
		over.obeyed(t, []rule{
			{"two lengths that differ", rawLines(post + "Content-Length: 5|Content-Length: 6||hello!"), 400, true, "", ""},
			{"two lengths in one line", rawLines(post + "Content-Length: 5, 6||hello!"), 400, true, "", ""},
			{"the same length twice", rawLines(post + "Content-Length: 5|Content-Length: 5||hello"), 400, true, "", ""},
			{"plus", rawLines(post + "Content-Length: +5||hello"), 400, true, "", ""},
			{"minus", rawLines(post + "Content-Length: -5||hello"), 400, true, "", ""},
			{"hexadecimal", rawLines(post + "Content-Length: 0x5||hello"), 400, true, "", ""},
			{"nothing", rawLines(post + "Content-Length: ||hello"), 400, true, "", ""},
			{"two words", rawLines(post + "Content-Length: 5 5||hello"), 400, true, "", ""},
			{"more than any machine counts", rawLines(post + "Content-Length: 99999999999999999999||hello"), 400, true, "", ""},
			{"chunked is not last", rawLines(post + "Transfer-Encoding: chunked, gzip||5|hello|0||"), 501, true, "", ""},
			{"unknown coding", rawLines(post + "Transfer-Encoding: x||5|hello|0||"), 501, true, "", ""},
			{"another coding before chunked", rawLines(post + "Transfer-Encoding: gzip, chunked||5|hello|0||"), 501, true, "", ""},
			{"chunked twice", rawLines(post + "Transfer-Encoding: chunked, chunked||5|hello|0||"), 501, true, "", ""},
			{"chunked in two lines", rawLines(post + "Transfer-Encoding: chunked|Transfer-Encoding: chunked||5|hello|0||"), 501, true, "", ""},
			{"chunked, disguised", rawLines(post + "Transfer-Encoding: \vchunked||5|hello|0||"), 400, true, "", ""},
			{"chunks", rawLines(chunked + "5|hello|1|!|0||"), 200, false, "Transfer-Encoding: chunked\r\n", ""},
			{"extensions of chunks", rawLines(chunked + "5;a=b|hello|0;c||"), 200, false, "hello", "a=b"},
			{"chunk of no size", rawLines(chunked + "x|hello|0||"), 400, true, "", ""},
			{"chunk of a size beyond counting", rawLines(chunked + "FFFFFFFFFFFFFFFFF|hello|0||"), 400, true, "", ""},
			{"chunk of less than nothing", rawLines(chunked + "-5|hello|0||"), 400, true, "", ""},
			{"chunk line ended by a line feed", rawLines(chunked+"5") + "\nhello" + rawLines("|0||"), 400, true, "", ""},
			{"chunk ended by something else", rawLines(chunked + "5|helloXX0||"), 400, true, "", ""},
			{"extension without end", rawLines(chunked + "5;" + strings.Repeat("a", 5000) + "|hello|0||"), 400, true, "", ""},
		})
	})
}

func TestRules_Trailers(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		chunked := "POST / HTTP/1.1|Host: a|Trailer: X-Sum, Authorization, X-Forwarded-For|Transfer-Encoding: chunked||5|hello|0|"
		over.obeyed(t, []rule{
			{"announced", rawLines(chunked + "X-Sum: 42||"), 200, false, "0\r\nX-Sum: 42\r\n\r\n", ""},
			{"not announced", rawLines(chunked + "X-Other: 42||"), 200, false, "hello", "X-Other"},
			{"who one is", rawLines(chunked + "Authorization: 42||"), 200, false, "hello", "Authorization: 42"},
			{"where one is", rawLines(chunked + "X-Forwarded-For: 6.6.6.6||"), 200, false, "hello", "6.6.6.6"},
			{"framing, announced", rawLines("POST / HTTP/1.1|Host: a|Trailer: Content-Length|Transfer-Encoding: chunked||0|Content-Length: 42||"), 200, false, "", "Content-Length: 42"},
			{"how long it is", rawLines(chunked + "Content-Length: 42||"), 200, false, "hello", "Content-Length: 42"},
		})
	})
}

func TestRules_TrailersOfAnswers(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 42\r\nSet-Cookie: a=b\r\n\r\n")
		f := over.opened(t, forwardYAML(s.url, "", ""))
		answer, _ := f.dial(plainly).WantStatus(200)
		if answer.Trailer.Get("X-Sum") != "42" || answer.Trailer.Get("Set-Cookie") != "" || answer.Header.Get("X-Sum") != "" {
			t.Errorf("trailers %v; want X-Sum, and only there", answer.Trailer)
		}
	})
}

func TestRules_ACutRequestIsNoRequest(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		for _, said := range []string{"Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"} {
			whole := make(chan error, 1)
			url := startUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				whole <- err
			})
			w := over.opened(t, forwardYAML(url, "", "")).dial("POST / HTTP/1.1\r\nHost: a\r\n" + said)
			w.Conn.Close()
			if err := await.Value(t, whole, "end of the upstream's request"); err == nil {
				t.Errorf("%q: the upstream saw a whole request", said)
			}
		}
	})
}

func TestRules_ACutAnswerLooksCut(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		for _, head := range []string{"Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"} {
			s := startRecording(t, "HTTP/1.1 200 OK\r\nConnection: close\r\n"+head)
			w := over.opened(t, forwardYAML(s.url, "", "")).dial(plainly)
			answer, err := http.ReadResponse(w.Reader, nil)
			if err == nil {
				_, err = io.ReadAll(answer.Body)
			}
			if err != io.ErrUnexpectedEOF {
				t.Errorf("%q: got %v; want that it is cut", head, err)
			}
		}
	})
}

func TestRules_AnswersWithoutBody(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		for _, c := range []struct{ method, answer string }{
			{"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"},
			{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"},
			{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"},
			{"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
		} {
			f := over.opened(t, forwardYAML(startRecording(t, c.answer).url, "", ""))
			w := f.dial("")
			for range 2 {
				w.Send(fmt.Sprintf("%s / HTTP/1.1\r\nHost: a\r\n\r\n", c.method))
				answer, body := w.ReadResponse(c.method)
				length := answer.Header.Get("Content-Length")
				if body != "" || answer.StatusCode == 204 && length != "" {
					t.Errorf("%s, %q: %v, %q; want no body, and no length with 204", c.method, c.answer, answer, body)
				}
			}
		}
	})
}

func TestRules_WhatFollowsAnAnswerIsNoAnswer(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, fine+"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		f := over.opened(t, forwardYAML(s.url, "", ""))
		w := f.dial("")
		for range 20 {
			w.Send(plainly)
			if _, body := w.WantStatus(200); body != "ok" {
				t.Fatalf("answer %q; want ok: what came after an answer was taken for one", body)
			}
		}
	})
}

func TestRules_OrderAndEnd(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, forwardYAML("echo", "", ""))
		w := f.dial(rawLines("GET /1 HTTP/1.1|Host: a||GET /2 HTTP/1.1|Host: a||GET /3 HTTP/1.1|Host: a|Connection: close||GET /4 HTTP/1.1|Host: a||"))
		for _, path := range []string{"/1", "/2", "/3"} {
			if _, body := w.WantStatus(200); !strings.Contains(body, `"path": "`+path+`"`) {
				t.Errorf("got %s; want the answer to %s", body, path)
			}
		}
		w.WantClosed()
	})
}

func TestRules_HTTP10(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
		f := over.opened(t, forwardYAML(s.url, "", ""))
		answer, body := f.dial("GET / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n").WantStatus(200)
		if body != "ok" || len(answer.TransferEncoding) > 0 || answer.Proto != "HTTP/1.0" && answer.Proto != "HTTP/1.1" {
			t.Errorf("got %s %v %q; want a body that ends with its connection, and no 103", answer.Proto, answer.TransferEncoding, body)
		}
		if got := s.last(t); strings.Contains(got, "Expect") {
			t.Errorf("forwarded as %q; want no Expect, which HTTP/1.0 has not", got)
		}
	})
}

// What is no request is refused as everything else is: in words, on a connection that
// ends, with a line in the log and a figure, and without a word to the upstream.
func TestUnread_IsRefusedAsAllElse(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, fine)
		f := over.opened(t, strings.Replace(forwardYAML(s.url, "", ""), "routes:", "listen: {max_header: 4KiB}\nroutes:", 1))
		for _, c := range []struct {
			name, bytes string
			status      int
		}{
			{"no request line", "garbage\r\n\r\n", 400},
			{"no version", "GET /\r\n\r\n", 400},
			{"a version that is none", rawLines("GET / HTTP/x|Host: a||"), 400},
			{"a target that is none", rawLines("GET a%zz HTTP/1.1|Host: a||"), 400},
			{"a method that is none", rawLines("G@T / HTTP/1.1|Host: a||"), 400},
			{"no host", rawLines("GET / HTTP/1.1|X-A: a||"), 400},
			{"two hosts", rawLines("GET / HTTP/1.1|Host: a|Host: b||"), 400},
			{"a host that is none", rawLines("GET / HTTP/1.1|Host: a b||"), 400},
			{"a field without a colon", rawLines("GET / HTTP/1.1|Host: a|X-A||"), 400},
			{"a blank before the colon", rawLines("GET / HTTP/1.1|Host: a|X-A : a||"), 400},
			{"a field with a control character", rawLines("GET / HTTP/1.1|Host: a|X-A: \x01||"), 400},
			{"two lengths", rawLines("POST / HTTP/1.1|Host: a|Content-Length: 1|Content-Length: 2||x"), 400},
			{"a length that is none", rawLines("POST / HTTP/1.1|Host: a|Content-Length: 1x||x"), 400},
			{"an expectation that nobody has", rawLines("POST / HTTP/1.1|Host: a|Expect: tea|Content-Length: 0||"), 417},
			{"a long header", rawLines("GET / HTTP/1.1|Host: a|X-A: " + strings.Repeat("a", 64<<10) + "||"), 431},
			{"a coding that is not known", rawLines("POST / HTTP/1.1|Host: a|Transfer-Encoding: br||"), 501},
			{"a version to come", rawLines("GET / HTTP/3.0|Host: a||"), 505},
		} {
			t.Run(c.name, func(t *testing.T) {
				w := f.dial(c.bytes)
				w.TB = t
				answer, body := w.WantStatus(c.status)
				if got := answer.Header.Get("Content-Type"); got != "application/problem+json" {
					t.Errorf("%s: %q; want a problem", got, body)
				}
				if !answer.Close {
					t.Errorf("%v; want Connection: close", answer.Header)
				}
				w.WantClosed()
			})
		}
		if lines := f.lines("request"); len(lines) != 17 || lines[0]["status"] != 400.0 || lines[0]["error"] == "" || lines[0]["client"] != "127.0.0.1" {
			t.Errorf("the log has %v; want a line of each", lines)
		}
		if n := testutil.CollectAndCount(f.metrics.requests); n != 5 {
			t.Errorf("%d figures of requests; want one of each status", n)
		}
		s.notAsked(t)
	})
}

// The same behind a request that is as it should be: that one is answered by the
// upstream, the rest ends the connection.
func TestUnread_BehindARequest(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, fine)
		w := over.opened(t, forwardYAML(s.url, "", "")).dial(plainly + "garbage\r\n\r\n" + plainly)
		w.WantStatus(200)
		w.WantStatus(400)
		w.WantClosed()
		if got := s.last(t); !strings.HasPrefix(got, "GET ") {
			t.Errorf("the upstream was sent %q", got)
		}
		s.notAsked(t)
	})
}
