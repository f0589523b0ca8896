package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// closeWrite ends the client's side of the connection.
func closeWrite(w *sockettest.Client) {
	w.Helper()
	if err := w.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		w.Fatal(err)
	}
}

// wantContinue reads the question whether the client is still there.
func wantContinue(w *sockettest.Client) {
	w.Helper()
	answer, err := http.ReadResponse(w.Reader, nil)
	if err != nil || answer.StatusCode != 100 {
		w.Fatalf("got %v, %v; want 100", answer, err)
	}
}

// A client that has sent its request whole may end its side, and gets its answer.
func TestHalf_TheAnswerComes(t *testing.T) {
	let := make(chan bool)
	url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		select {
		case <-let:
			io.WriteString(w, "at last")
		case <-r.Context().Done():
		}
	})
	f := startServer(t, forwardYAML(url, "", ""))
	for _, said := range []string{plainly, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"} {
		w := f.dial(said)
		closeWrite(w)
		wantContinue(w)
		let <- true
		if _, body := w.WantStatus(200); body != "at last" {
			t.Errorf("%q: %q", said, body)
		}
		w.WantClosed()
	}
}

// A client that resets the connection has left: nobody works for it any longer.
func TestHalf_AResetEndsTheWork(t *testing.T) {
	began, ended := make(chan bool, 1), make(chan bool, 1)
	url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		began <- true
		<-r.Context().Done()
		ended <- true
	})
	f := startServer(t, forwardYAML(url, "", ""))
	for _, how := range []string{"end and reset", "reset", "end"} {
		w := f.dial(plainly)
		await.Value(t, began, "request")
		if how == "end and reset" {
			closeWrite(w)
			wantContinue(w)
		}
		if how != "end" {
			w.Conn.(*net.TCPConn).SetLinger(0)
		}
		w.Conn.Close()
		await.Value(t, ended, "end of the work after "+how)
	}
}

// HTTP/1.0 knows no answer before the answer, so nothing is asked there.
func TestHalf_InHTTP10(t *testing.T) {
	let := make(chan bool)
	url := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) { let <- true; <-let })
	f := startServer(t, forwardYAML(url, "", ""))
	w := f.dial("GET / HTTP/1.0\r\nHost: a\r\n\r\n")
	await.Value(t, let, "request")
	closeWrite(w)
	f.dial(rawLines("OPTIONS * HTTP/1.1|Host: a||")).WantStatus(200) // the end has been seen meanwhile
	let <- true
	if answer, _ := w.ReadResponse("GET"); answer.StatusCode != 200 {
		t.Errorf("got %s; want 200 at once", answer.Status)
	}
}

// A client that has closed without a reset is found to have left with the first bytes
// that it is sent; and in the middle of an answer that says nothing more, after the
// time for writing.
func TestHalf_WhoHasClosedIsNoticed(t *testing.T) {
	sent, ended := make(chan bool, 1), make(chan bool, 1)
	url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		sent <- true
		<-r.Context().Done()
		ended <- true
	})
	f := startServer(t, forwardYAML(url, short("write"), ""))
	w := f.dial(plainly)
	await.Value(t, sent, "beginning of the answer")
	if _, err := http.ReadResponse(w.Reader, nil); err != nil {
		t.Fatal(err)
	}
	closeWrite(w)
	await.Value(t, ended, "end of the upstream's answer")
}

// In TLS it is the same.
func TestHalf_InTLS(t *testing.T) {
	let := make(chan bool)
	url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { <-let; io.WriteString(w, "at last") })
	addr, client := startServer(t, forwardYAML(url, "", "")).listenTLSClient()
	config := client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(enough))
	io.WriteString(c, plainly)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	let <- true
	if got, err := io.ReadAll(c); err != nil || !strings.Contains(string(got), "at last") {
		t.Errorf("%q, %v; want the answer", got, err)
	}
}
