package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
)

// short makes these timeouts so short that a test can wait for them. A busy machine may
// reach them as well: a test that is about one of them leaves the others as they are.
func short(timeouts ...string) string {
	return "listen: {timeouts: {" + strings.Join(timeouts, ": 300ms, ") + ": 300ms}}"
}

func TestSlow_HeaderIsCut(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, forwardYAML("echo", short("header"), ""))
		f.dial("").WantClosed()
		for _, said := range []string{"GET / HT", "GET / HTTP/1.1\r\nHost: a\r\nX: 1"} {
			rest, err := io.ReadAll(f.dial(said).Reader)
			if err != nil || !strings.HasPrefix(string(rest), "HTTP/1.1 408 ") {
				t.Errorf("%q is answered with %q, %v; want 408, and the end", said, rest, err)
			}
		}
	})
}

func TestSlow_IdleConnectionIsClosed(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		w := over.opened(t, forwardYAML("echo", short("idle"), "")).dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		w.WantStatus(200)
		w.WantClosed()
	})
}

func TestSlow_BodyIsCutWith408(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		for _, head := range []string{"Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"} {
			gone := make(chan error, 1)
			url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				gone <- err
			})
			f := over.opened(t, forwardYAML(url, short("body"), ""))
			w := f.dial("POST / HTTP/1.1\r\nHost: a\r\n" + head)
			answer, _ := w.WantStatus(408)
			w.WantClosed()
			if !answer.Close || answer.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("408 with %v; want a problem and the end of the connection", answer.Header)
			}
			if err := await.Value(t, gone, "end of the upstream's request"); err == nil {
				t.Error("the upstream read a whole body; the client sent half of one")
			}
			if line := f.line("request"); line["status"] != 408.0 {
				t.Errorf("logged %v; want 408", line)
			}
		}
	})
}

func TestSlow_UpstreamIsNotTheClientsFault(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		release := make(chan bool)
		url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/slow" {
				<-release
			}
			fmt.Fprint(w, "at last")
		})
		f := over.opened(t, forwardYAML(url, short("header", "body", "write"), ""))
		slow := f.dial("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody")
		for range 2 { // the bounds pass meanwhile
			f.dial("").WantClosed()
		}
		close(release)
		if _, body := slow.WantStatus(200); body != "at last" {
			t.Errorf("answer %q", body)
		}
	})
}

func TestSlow_ReaderIsCut(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		failed := make(chan error, 1)
		url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { failed <- writeForever(w) })
		f := over.opened(t, forwardYAML(url, short("write"), ""))
		f.dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n") // and never reads
		if err := await.Value(t, failed, "end of the upstream's answer"); err == nil {
			t.Error("the upstream could write for ever")
		}
	})
}

func TestSlow_RefusalsDoNotWaitForTheBody(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, forwardYAML("echo", "", "limits: [{key: global, rate: 1/1h}]"))
		w := f.dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody")
		w.WantStatus(200)

		w.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n")
		if answer, _ := w.WantStatus(429); answer.Close {
			t.Error("a short body costs the connection")
		}
		w.Send("bodyPOST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		w.WantStatus(429)
		w.Send("4\r\nbody\r\n0\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
		if answer, _ := w.WantStatus(429); !answer.Close {
			t.Error("the connection goes on although the body may or may not come")
		}

		w = f.dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n")
		if answer, _ := w.WantStatus(429); !answer.Close {
			t.Error("a long body is waited for")
		}
	})
}

func TestSlow_ARefusedBodyThatNeverComes(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, forwardYAML("echo", short("body"), "limits: [{key: global, rate: 1/1h}]"))
		f.dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n").WantStatus(200)
		for _, head := range []string{"Content-Length: 4\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 4\r\nExpect: 100-continue\r\n", "Content-Length: 999999\r\n"} {
			w := f.dial("POST / HTTP/1.1\r\nHost: a\r\n" + head + "\r\n")
			w.WantStatus(429)
			w.WantClosed()
		}
	})
}

func TestBody_TooLargeIs413(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		got := make(chan string, 10)
		url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			got <- fmt.Sprintf("%d %v", len(b), err == nil)
		})
		f := over.opened(t, forwardYAML(url, short("body"), "body: {max: 1KiB}, limits: [{key: global, rate: 3/1h}]"))
		kib := strings.Repeat("x", 1024)

		f.dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n" + kib).WantStatus(200)
		if seen := await.Value(t, got, "request"); seen != "1024 true" {
			t.Errorf("the upstream read %s; want it all", seen)
		}
		for range 5 { // none is counted
			w := f.dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\nExpect: 100-continue\r\n\r\n")
			w.WantStatus(413)
			w.WantClosed()
		}
		w := f.dial("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" + kib + "\r\n1\r\nx\r\n")
		if answer, _ := w.WantStatus(413); !answer.Close {
			t.Error("the connection goes on after a body that was not read")
		}
		if seen := await.Value(t, got, "request"); !strings.HasSuffix(seen, "false") {
			t.Errorf("the upstream read %s; want a body that is cut", seen)
		}
		f.dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n").WantStatus(200)
		f.dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n").WantStatus(429)
	})
}

// line is the log line of the last request, as soon as it is written.
func (t *testServer) line(message string) map[string]any {
	t.Helper()
	var all []map[string]any
	await.Until(t, "a log line "+message, func() bool {
		all = t.lines(message)
		return len(all) > 0
	})
	return all[len(all)-1]
}
