package test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestDrain_RequestsUnderWayEnd(t *testing.T) {
	release := make(chan struct{})
	api := backend(t, func(w http.ResponseWriter, r *http.Request) {
		held(r, release)
		fmt.Fprint(w, "done")
	})
	w := start(t, "routes:\n  - {match: {path: /slow}, upstream: "+api.URL+"}\n")
	const clients = 5
	answers := make(chan string, clients)
	for range clients {
		go func() {
			status, body := do(t, http.MethodPost, w.URL+"/slow", nil)
			answers <- fmt.Sprint(status, body)
		}()
	}
	eventually(t, "the requests are under way", func() bool { return api.hits() == clients })

	w.signal(syscall.SIGTERM)
	eventually(t, "no connection is taken any more", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
		if err != nil {
			return true
		}
		conn.Close()
		return false
	})
	if w.ended() {
		t.Fatal("weir ended while requests were under way")
	}
	close(release)
	for range clients {
		select {
		case got := <-answers:
			if got != "200done" {
				t.Errorf("a request under way is answered %q, want 200 done", got)
			}
		case <-time.After(patience):
			t.Fatal("a request under way is not answered")
		}
	}
	if code := w.exit(); code != 0 {
		t.Errorf("exit code %d after draining, want 0", code)
	}
}

func TestDrain_IdleConnectionsDoNotHoldIt(t *testing.T) {
	w := start(t, sms("1/1m", ""))
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/sms/send HTTP/1.1\r\nHost: x\r\nX-Phone: 1\r\nContent-Length: 0\r\n\r\n")
	w.logged("request", nil)
	w.signal(syscall.SIGTERM)
	if code := w.exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}
