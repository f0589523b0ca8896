package http1

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// serves answers with a handler of net/http.
func serves(h http.HandlerFunc) Handler { return func(x *Exchange) { x.ServeNetHTTP(h) } }

// A handler of net/http sees the request as a server of net/http would show it, also
// over TLS, and may keep what it sees.
func TestServeNetHTTP_Request(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		kept := make(chan *http.Request, 10)
		p := serving(t, serves(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			w.Header().Set("X-Body", string(body))
			w.WriteHeader(http.StatusNoContent)
			kept <- r
		}), nil)
		w := p.dial(t, lined("POST /a%2Fb?c=d HTTP/1.1|Host: example.com|X-A: 1|x-a: 2|Transfer-Encoding: chunked||5|hello|0||"))
		if res, _ := w.WantStatus(204); res.Header.Get("X-Body") != "hello" || res.Close {
			t.Errorf("got %v, close %t", res.Header, res.Close)
		}
		w.Send(lined("GET /zzzzzzzzzzzzz HTTP/1.1|Host: zzzzzzzzzzz|X-Z: zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz||"))
		w.WantStatus(204)
		r := await.Value(t, kept, "request")
		_, secure := t.(sockettest.Secured)
		if r.Method != "POST" || r.URL.Path != "/a/b" || r.URL.RawPath != "/a%2Fb" || r.URL.RawQuery != "c=d" || r.Host != "example.com" || r.RequestURI != "/a%2Fb?c=d" ||
			r.RemoteAddr != w.LocalAddr().String() || r.ProtoMinor != 1 || r.ContentLength != -1 || (r.TLS != nil) != secure {
			t.Errorf("got %+v", r)
		}
		if got, want := fmt.Sprint(r.Header), "map[X-A:[1 2]]"; got != want {
			t.Errorf("got %s; want %s", got, want)
		}
	})
}

// What a handler of net/http writes is what the client gets.
func TestServeNetHTTP_Response(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, c := range []struct {
			topic  string
			handle http.HandlerFunc
			status int
			want   string // of the header and the body
		}{
			{"nothing", func(http.ResponseWriter, *http.Request) {}, 200, "length 0 "},
			{"implicit status", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") }, 200, "hi"},
			{"the first status counts", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418); w.WriteHeader(200) }, 418, ""},
			{"a length", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "2")
				_, _ = io.WriteString(w, "hi")
			}, 200, "length 2 hi"},
			{"fields of the connection are not the handler's", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Transfer-Encoding", "gzip")
				w.Header().Set("Keep-Alive", "1")
				w.Header().Set("X-A", "1")
			}, 200, "length 0 "},
			{"field after field", func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["X-A"] = []string{"1", "2"}
				w.Header().Set("Transfer-Encoding", "gzip")
				w.WriteHeader(200)
			}, 200, "[1 2] "},
			{"hijacking", func(w http.ResponseWriter, _ *http.Request) {
				if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
					t.Errorf("got %v", err)
				}
				w.WriteHeader(200)
			}, 200, ""},
		} {
			p := serving(t, serves(c.handle), nil)
			w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
			w.WantStatus(c.status)
			w.Send(lined("GET / HTTP/1.1|Host: a||")) // the connection is kept
			res, body := w.WantStatus(c.status)
			got := body
			if a := res.Header["X-A"]; a != nil {
				got = fmt.Sprint(a) + " " + got
			}
			if res.ContentLength >= 0 && res.Header.Get("Content-Length") != "" && c.status == 200 {
				got = fmt.Sprintf("length %d %s", res.ContentLength, got)
			}
			if got != c.want || res.Header.Get("Keep-Alive") != "" || len(res.TransferEncoding) > 0 && res.TransferEncoding[0] != "chunked" {
				t.Errorf("%s: got %q, %v; want %q", c.topic, got, res.Header, c.want)
			}
		}
	})
}

// What is flushed comes at once, also through middleware that knows http.Flusher alone.
func TestServeNetHTTP_Flush(t *testing.T) {
	for name, flush := range map[string]func(http.ResponseWriter) error{
		"controller": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
		"flusher":    func(w http.ResponseWriter) error { w.(http.Flusher).Flush(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			let := make(chan struct{})
			p := serving(t, serves(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "first")
				if err := flush(w); err != nil {
					t.Error(err)
				}
				<-let
			}), nil)
			w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
			res, err := http.ReadResponse(w.Reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			first := make([]byte, 5)
			if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first" {
				t.Errorf("got %q, %v", first, err)
			}
			close(let)
			if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
				t.Errorf("got %q, %v", rest, err)
			}
		})
	}
}

// An answer that begins before the body has been read ends the connection, and so is a
// read of the body that has not ended when the handler has.
func TestServeNetHTTP_ReadAfterReturn(t *testing.T) {
	read := make(chan error, 1)
	p := serving(t, serves(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/on" {
			waits := make(chan struct{})
			go func() {
				b := make([]byte, 10)
				_, _ = io.ReadFull(r.Body, b[:2])
				close(waits)
				_, err := r.Body.Read(b)
				if err == nil {
					_, err = r.Body.Read(b)
				}
				read <- err
			}()
			<-waits
		}
		w.WriteHeader(200)
	}), nil)
	w := p.dial(t, lined("POST /early HTTP/1.1|Host: a|Content-Length: 10||hi"))
	if res, _ := w.WantStatus(200); !res.Close {
		t.Error("the connection does not end")
	}
	w = p.dial(t, lined("POST /on HTTP/1.1|Host: a|Content-Length: 10||hi"))
	w.WantStatus(200)
	if err := await.Value(t, read, "end of the read"); err == nil {
		t.Error("the read went on")
	}
	w.WantClosed()
}

// A panic of the handler ends the connection, and a cut answer looks cut.
func TestServeNetHTTP_Panic(t *testing.T) {
	p := serving(t, serves(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 20_000))
		panic(http.ErrAbortHandler)
	}), func(s *Server) { s.OnPanic = func(any) {} })
	w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
	res, err := http.ReadResponse(w.Reader, nil)
	if err == nil {
		_, err = io.ReadAll(res.Body)
	}
	if err == nil {
		t.Error("it looks whole")
	}
}
