package upstream

import (
	"bufio"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
)

// openHTTP2 is open for clients that speak HTTP/2, and one of them.
func openHTTP2(t *testing.T, pool *Pool, change func(*Request)) (*testProxy, *http.Client) {
	t.Helper()
	p := &testProxy{results: make(chan Result, 10)}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := netRequestOf(r)
		if change != nil {
			change(asked)
		}
		res := pool.Forward(r.Context(), asked, NewHTTP2Sink(r.Context(), w))
		p.results <- res
		if res.Kind != OK && res.HeaderSent {
			panic(http.ErrAbortHandler)
		}
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	p.URL = s.URL
	t.Cleanup(func() { s.Client().CloseIdleConnections(); s.Close(); pool.Close() })
	return p, s.Client()
}

func TestForward_FromHTTP2(t *testing.T) {
	url := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Via", r.Header.Get("Via"))
		w.Header().Set("X-Proto", r.Proto)
		w.Header().Set("Trailer", "X-Sum")
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		_ = rc.Flush()
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			_, _ = io.WriteString(w, "you said "+line)
			_ = rc.Flush()
		}
		w.Header().Set("X-Sum", r.Trailer.Get("X-Sum")+"!")
	})
	h, client := openHTTP2(t, poolOf(t, url), nil)
	body, say := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Trailer = http.Header{"X-Sum": nil}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 || res.Header.Get("X-Via") != "2.0 weir-test" || res.Header.Get("X-Proto") != "HTTP/1.1" {
		t.Errorf("%s, upstream saw Via %q, %s", res.Proto, res.Header.Get("X-Via"), res.Header.Get("X-Proto"))
	}
	lines := bufio.NewReader(res.Body)
	for _, word := range []string{"one\n", "two\n"} {
		send(t, say, "%s", word)
		if got, err := lines.ReadString('\n'); got != "you said "+word {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	r.Trailer.Set("X-Sum", "42")
	say.Close()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 || res.Trailer.Get("X-Sum") != "42!" {
		t.Errorf("rest %q, %v, trailers %v", rest, err, res.Trailer)
	}
	if got := h.result(t); got.Kind != OK {
		t.Errorf("result %+v", got)
	}
}

func TestForward_FromHTTP2_AbortsAndClientGone(t *testing.T) {
	url, _ := startReplying(t, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
	h, client := openHTTP2(t, poolOf(t, url), nil)
	res, err := client.Get(h.URL)
	if err == nil {
		_, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "stream error") {
		t.Errorf("client reads %v, want that the stream is cut", err)
	}
	if got := h.result(t); got.Kind != ResponseTruncated || !got.HeaderSent {
		t.Errorf("result %+v", got)
	}

	ended := make(chan bool, 1)
	url = startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		ended <- true
	})
	h, client = openHTTP2(t, poolOf(t, url), nil)
	res, err = client.Get(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close() // resets the stream
	await.Value(t, ended, "end of the upstream's work")
	if got := h.result(t); got.Kind != ClientGone {
		t.Errorf("result %+v", got)
	}
}
