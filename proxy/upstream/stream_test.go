package upstream

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

func TestForward_StreamsInBothDirections(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		url := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex()
			_ = rc.Flush()
			lines := bufio.NewReader(r.Body)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				_, _ = io.WriteString(w, "you said "+line)
				_ = rc.Flush()
			}
		})
		h := startProxy(t, poolOf(t, url), nil)
		c, r := h.dial(t, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(res.Body)
		for _, word := range []string{"one\n", "two\n", "three\n"} {
			send(t, c, "%x\r\n%s\r\n", len(word), word)
			if got, err := lines.ReadString('\n'); got != "you said "+word {
				t.Fatalf("got %q, %v", got, err)
			}
		}
		send(t, c, "0\r\n\r\n")
		if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
			t.Errorf("rest %q, %v", rest, err)
		}
		if got := h.result(t); got.Kind != OK || got.Status != 200 {
			t.Errorf("result %+v", got)
		}
	})
}

func TestForward_ResponseIsNotBuffered(t *testing.T) {
	for name, head := range map[string]string{
		"event stream": "Content-Type: text/event-stream\r\nContent-Length: 10\r\n\r\n",
		"known length": "Content-Length: 10\r\n\r\n",
		"until close":  "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			more := make(chan bool)
			url := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				readHead(r)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head)
				for _, piece := range []string{"first", "after"} {
					if _, ok := <-more; !ok {
						return
					}
					_, _ = io.WriteString(c, piece)
				}
			})
			h := startProxy(t, poolOf(t, url), nil)
			_, r := h.dial(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			defer close(more)
			res, err := http.ReadResponse(r, nil) // the header does not wait for a body
			if err != nil {
				t.Fatal(err)
			}
			for _, piece := range []string{"first", "after"} {
				more <- true
				got := make([]byte, 5)
				if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != piece {
					t.Fatalf("piece %q, %v; want %q", got, err, piece)
				}
			}
		})
	}
}

func TestForward_ClientGoneAbortsUpstreamRequest(t *testing.T) {
	for name, begin := range map[string]bool{"before the answer": false, "in its middle": true} {
		t.Run(name, func(t *testing.T) {
			arrived, ended := make(chan bool, 1), make(chan bool, 1)
			url := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
				if begin {
					_, _ = io.WriteString(w, "x")
					_ = http.NewResponseController(w).Flush()
				}
				arrived <- true
				<-r.Context().Done()
				ended <- true
			})
			h := startProxy(t, poolOf(t, url), nil)
			c, r := h.dial(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			await.Value(t, arrived, "request")
			if begin {
				if _, err := http.ReadResponse(r, nil); err != nil {
					t.Fatal(err)
				}
			}
			c.Close()
			await.Value(t, ended, "end of the upstream's work")
			got := h.result(t)
			if got.Kind != ClientGone || got.HeaderSent != begin || !errors.Is(got.Err, http1.ErrAborted) {
				t.Errorf("result %+v, want that the client left", got)
			}
		})
	}
}

func TestForward_TruncatedResponseIsVisible(t *testing.T) {
	for name, answer := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
		"nothing": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
		"garbage": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := startReplying(t, answer)
			h := startProxy(t, poolOf(t, url), nil)
			_, r := h.dial(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			res, err := http.ReadResponse(r, nil)
			if err == nil {
				_, err = io.ReadAll(res.Body)
			}
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("client reads %v, want that the answer is cut", err)
			}
			if got := h.result(t); got.Kind != ResponseTruncated || !got.HeaderSent || got.Status != 200 || got.Err == nil {
				t.Errorf("result %+v", got)
			}
		})
	}
}

func TestForward_ClientErrorsAreNotUpstreamErrors(t *testing.T) {
	url := startBackend(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	h := startProxy(t, poolOf(t, url), func(_ *Request, r received) {
		if firstOf(r, "X-Max") != "" {
			r.limit(3)
		}
	})
	for name, c := range map[string]struct {
		request string
		want    ResultKind
		status  int
	}{
		"chunk size":    {"Transfer-Encoding: chunked\r\n\r\nzz\r\n", BadRequest, 400},
		"chunk end":     {"Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n", BadRequest, 400},
		"too much":      {"X-Max: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", BodyTooLarge, 413},
		"too much (CL)": {"X-Max: 1\r\nContent-Length: 5\r\n\r\nabcde", BodyTooLarge, 413},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := h.dial(t, "POST / HTTP/1.1\r\nHost: a\r\n"+c.request)
			res, _ := answer(t, r, "POST")
			if got := h.result(t); got.Kind != c.want || got.HeaderSent || res.StatusCode != c.status {
				t.Errorf("result %+v, status %s; want kind %d, status %d", got, res.Status, c.want, c.status)
			}
			if c.want == BadRequest {
				if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
					t.Errorf("connection goes on with %q, %v; want its end", rest, err)
				}
			}
		})
	}
	t.Run("half a body", func(t *testing.T) {
		c, _ := h.dial(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
		c.Close()
		if got := h.result(t); got.Kind != ClientGone {
			t.Errorf("result %+v, want that the client left", got)
		}
	})
}

func TestForward_InvalidBytesInResponseBody(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		url := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex()
			_ = rc.Flush()
			if _, err := io.Copy(w, r.Body); err != nil {
				panic(http.ErrAbortHandler)
			}
		})
		h := startProxy(t, poolOf(t, url), nil)
		c, r := h.dial(t, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		send(t, c, "zz\r\n")
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Error("the answer looks whole")
		}
		if got := h.result(t); got.Kind != BadRequest || !got.HeaderSent || got.Status != 200 {
			t.Errorf("result %+v, want that the client is to blame", got)
		}
	})
}

func TestForward_EarlyResponse(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		seen := make(chan string, 1)
		url := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
			readHead(r)
			_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
			rest, _ := io.ReadAll(r)
			seen <- string(rest)
		})
		h := startProxy(t, poolOf(t, url), nil)
		c, r := h.dial(t, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		res, body := answer(t, r, "POST")
		if res.StatusCode != 403 || body != "no" || !res.Close {
			t.Errorf("got %s %q, close %v; want the answer and the end of the connection", res.Status, body, res.Close)
		}
		// What follows is never taken for another request, whatever it is.
		_, _ = io.WriteString(c, "zz\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
		if rest, _ := io.ReadAll(r); len(rest) > 0 {
			t.Errorf("client reads %q after the answer", rest)
		}
		h.result(t)
		if len(h.results) > 0 {
			t.Errorf("a second request was served: %+v", h.result(t))
		}
		if rest := await.Value(t, seen, "end of the upstream's connection"); strings.Contains(rest, "smuggled") {
			t.Errorf("upstream reads %q", rest)
		}
	})
}

func TestForward_BodyFraming(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		type framing struct {
			length int64
			coding string
			body   string
		}
		seen := make(chan framing, 1)
		url := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			seen <- framing{r.ContentLength, strings.Join(r.TransferEncoding, ","), string(b)}
		})
		h := startProxy(t, poolOf(t, url), nil)
		for request, want := range map[string]framing{
			"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc":                             {3, "", "abc"},
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n":                               {0, "", ""},
			"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n": {-1, "chunked", "abc"},
		} {
			h.ask(t, request)
			if got := await.Value(t, seen, "request"); got != want {
				t.Errorf("%q: upstream sees %+v, want %+v", request, got, want)
			}
		}
	})
}

func TestForward_TrailersInBothDirections(t *testing.T) {
	seen := make(chan http.Header, 1)
	url := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum, X-Forwarded-For")
		_, _ = io.Copy(io.Discard, r.Body)
		seen <- r.Trailer
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Sum", "42")
		w.Header().Set("X-Forwarded-For", "6.6.6.6")
		w.Header().Set(http.TrailerPrefix+"X-Late", "1")
		w.Header().Set(http.TrailerPrefix+"Set-Cookie", "a=b")
	})
	h := startProxy(t, poolOf(t, url), nil)
	res, _ := h.ask(t, "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: X-Mine\r\nTransfer-Encoding: chunked\r\n"+
		"Trailer: X-Md5, X-Mine, X-Forwarded-For, Authorization, X_Real_Ip, X.Forwarded-For\r\n\r\n1\r\na\r\n0\r\nX-Md5: abc\r\nX_Real_Ip: 1\r\nX.Forwarded-For: 6.6.6.6\r\nX-Mine: 1\r\nX-Forwarded-For: 6.6.6.6\r\nAuthorization: x\r\n\r\n")
	if got := await.Value(t, seen, "request"); len(got) != 1 || got.Get("X-Md5") != "abc" {
		t.Errorf("upstream sees trailers %v, want X-Md5 alone", got)
	}
	if got := res.Trailer; len(got) != 2 || got.Get("X-Sum") != "42" || got.Get("X-Late") != "1" {
		t.Errorf("client sees trailers %v, want X-Sum and X-Late", got)
	}
}
