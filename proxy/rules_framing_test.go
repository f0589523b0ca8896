package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
)

func TestRules_LengthsOfRequests(t *testing.T) {
	overEach(t, func(t *testing.T, over reach) {
		post := "POST / HTTP/1.1|Host: a|"
		chunked := post + "Transfer-Encoding: chunked||"
		over.obeyed(t, []rule{
			{"two lengths that differ", lined(post + "Content-Length: 5|Content-Length: 6||hello!"), 400, true, "", ""},
			{"two lengths in one line", lined(post + "Content-Length: 5, 6||hello!"), 400, true, "", ""},
			{"the same length twice", lined(post + "Content-Length: 5|Content-Length: 5||hello"), 400, true, "", ""},
			{"plus", lined(post + "Content-Length: +5||hello"), 400, true, "", ""},
			{"minus", lined(post + "Content-Length: -5||hello"), 400, true, "", ""},
			{"hexadecimal", lined(post + "Content-Length: 0x5||hello"), 400, true, "", ""},
			{"nothing", lined(post + "Content-Length: ||hello"), 400, true, "", ""},
			{"two words", lined(post + "Content-Length: 5 5||hello"), 400, true, "", ""},
			{"more than any machine counts", lined(post + "Content-Length: 99999999999999999999||hello"), 400, true, "", ""},
			{"chunked is not last", lined(post + "Transfer-Encoding: chunked, gzip||5|hello|0||"), 501, true, "", ""},
			{"unknown coding", lined(post + "Transfer-Encoding: x||5|hello|0||"), 501, true, "", ""},
			{"another coding before chunked", lined(post + "Transfer-Encoding: gzip, chunked||5|hello|0||"), 501, true, "", ""},
			{"chunked twice", lined(post + "Transfer-Encoding: chunked, chunked||5|hello|0||"), 501, true, "", ""},
			{"chunked in two lines", lined(post + "Transfer-Encoding: chunked|Transfer-Encoding: chunked||5|hello|0||"), 501, true, "", ""},
			{"chunked, disguised", lined(post + "Transfer-Encoding: \vchunked||5|hello|0||"), 400, true, "", ""},
			{"chunks", lined(chunked + "5|hello|1|!|0||"), 200, false, "Transfer-Encoding: chunked\r\n", ""},
			{"extensions of chunks", lined(chunked + "5;a=b|hello|0;c||"), 200, false, "hello", "a=b"},
			{"chunk of no size", lined(chunked + "x|hello|0||"), 400, true, "", ""},
			{"chunk of a size beyond counting", lined(chunked + "FFFFFFFFFFFFFFFFF|hello|0||"), 400, true, "", ""},
			{"chunk of less than nothing", lined(chunked + "-5|hello|0||"), 400, true, "", ""},
			{"chunk line ended by a line feed", lined(chunked+"5") + "\nhello" + lined("|0||"), 400, true, "", ""},
			{"chunk ended by something else", lined(chunked + "5|helloXX0||"), 400, true, "", ""},
			{"extension without end", lined(chunked + "5;" + strings.Repeat("a", 5000) + "|hello|0||"), 400, true, "", ""},
		})
	})
}

func TestRules_Trailers(t *testing.T) {
	overEach(t, func(t *testing.T, over reach) {
		chunked := "POST / HTTP/1.1|Host: a|Trailer: X-Sum, Authorization, X-Forwarded-For|Transfer-Encoding: chunked||5|hello|0|"
		over.obeyed(t, []rule{
			{"announced", lined(chunked + "X-Sum: 42||"), 200, false, "0\r\nX-Sum: 42\r\n\r\n", ""},
			{"not announced", lined(chunked + "X-Other: 42||"), 200, false, "hello", "X-Other"},
			{"who one is", lined(chunked + "Authorization: 42||"), 200, false, "hello", "Authorization: 42"},
			{"where one is", lined(chunked + "X-Forwarded-For: 6.6.6.6||"), 200, false, "hello", "6.6.6.6"},
			{"framing, announced", lined("POST / HTTP/1.1|Host: a|Trailer: Content-Length|Transfer-Encoding: chunked||0|Content-Length: 42||"), 200, false, "", "Content-Length: 42"},
			{"how long it is", lined(chunked + "Content-Length: 42||"), 200, false, "hello", "Content-Length: 42"},
		})
	})
}

func TestRules_TrailersOfAnswers(t *testing.T) {
	overEach(t, func(t *testing.T, over reach) {
		s := scripted(t, "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 42\r\nSet-Cookie: a=b\r\n\r\n")
		f := over.opened(t, forwarding(s.url, "", ""))
		answer, _ := f.dial(plainly).Status(200)
		if answer.Trailer.Get("X-Sum") != "42" || answer.Trailer.Get("Set-Cookie") != "" || answer.Header.Get("X-Sum") != "" {
			t.Errorf("trailers %v; want X-Sum, and only there", answer.Trailer)
		}
	})
}

func TestRules_ACutRequestIsNoRequest(t *testing.T) {
	overEach(t, func(t *testing.T, over reach) {
		for _, said := range []string{"Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"} {
			whole := make(chan error, 1)
			url := upstreamOf(t, func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				whole <- err
			})
			w := over.opened(t, forwarding(url, "", "")).dial("POST / HTTP/1.1\r\nHost: a\r\n" + said)
			w.Conn.Close()
			if err := await.Value(t, whole, "end of the upstream's request"); err == nil {
				t.Errorf("%q: the upstream saw a whole request", said)
			}
		}
	})
}

func TestRules_ACutAnswerLooksCut(t *testing.T) {
	overEach(t, func(t *testing.T, over reach) {
		for _, head := range []string{"Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"} {
			s := scripted(t, "HTTP/1.1 200 OK\r\nConnection: close\r\n"+head)
			w := over.opened(t, forwarding(s.url, "", "")).dial(plainly)
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
	overEach(t, func(t *testing.T, over reach) {
		for _, c := range []struct{ method, answer string }{
			{"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"},
			{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"},
			{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"},
			{"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
		} {
			f := over.opened(t, forwarding(scripted(t, c.answer).url, "", ""))
			w := f.dial("")
			for range 2 {
				w.Says(fmt.Sprintf("%s / HTTP/1.1\r\nHost: a\r\n\r\n", c.method))
				answer, body := w.Hears(c.method)
				length := answer.Header.Get("Content-Length")
				if body != "" || answer.StatusCode == 204 && length != "" {
					t.Errorf("%s, %q: %v, %q; want no body, and no length with 204", c.method, c.answer, answer, body)
				}
			}
		}
	})
}

func TestRules_WhatFollowsAnAnswerIsNoAnswer(t *testing.T) {
	overEach(t, func(t *testing.T, over reach) {
		s := scripted(t, fine+"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		f := over.opened(t, forwarding(s.url, "", ""))
		w := f.dial("")
		for range 20 {
			w.Says(plainly)
			if _, body := w.Status(200); body != "ok" {
				t.Fatalf("answer %q; want ok: what came after an answer was taken for one", body)
			}
		}
	})
}

func TestRules_OrderAndEnd(t *testing.T) {
	overEach(t, func(t *testing.T, over reach) {
		f := over.opened(t, forwarding("echo", "", ""))
		w := f.dial(lined("GET /1 HTTP/1.1|Host: a||GET /2 HTTP/1.1|Host: a||GET /3 HTTP/1.1|Host: a|Connection: close||GET /4 HTTP/1.1|Host: a||"))
		for _, path := range []string{"/1", "/2", "/3"} {
			if _, body := w.Status(200); !strings.Contains(body, `"path": "`+path+`"`) {
				t.Errorf("got %s; want the answer to %s", body, path)
			}
		}
		w.Ended()
	})
}

func TestRules_HTTP10(t *testing.T) {
	overEach(t, func(t *testing.T, over reach) {
		s := scripted(t, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
		f := over.opened(t, forwarding(s.url, "", ""))
		answer, body := f.dial("GET / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n").Status(200)
		if body != "ok" || len(answer.TransferEncoding) > 0 || answer.Proto != "HTTP/1.0" && answer.Proto != "HTTP/1.1" {
			t.Errorf("got %s %v %q; want a body that ends with its connection, and no 103", answer.Proto, answer.TransferEncoding, body)
		}
		if got := s.last(t); strings.Contains(got, "Expect") {
			t.Errorf("forwarded as %q; want no Expect, which HTTP/1.0 has not", got)
		}
	})
}
