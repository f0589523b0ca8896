package test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Whatever clients send, the number of series stays what the configuration
// makes it.
func TestAbuse_ClientsCannotMakeMetrics(t *testing.T) {
	w := start(t, smsYAML("5/1h", ""))
	series := func() int {
		n := 0
		for text := range strings.Lines(w.metrics()) {
			if strings.HasPrefix(text, "weir_") {
				n++
			}
		}
		return n
	}
	odd := func(n int) {
		do(t, fmt.Sprintf("M%dX", n), w.URL+"/v1/sms/send", nil)
		do(t, http.MethodGet, fmt.Sprintf("%s/path-%d?q=%d", w.URL, n, n), http.Header{"User-Agent": {fmt.Sprint(n)}})
		sendRaw(t, w, fmt.Sprintf("GET / HTTP/1.1\r\nHost: h%d.example\r\n\r\n", n))
		w.send(fmt.Sprint("p", n))
	}
	odd(0)
	before := series()
	for n := range 50 {
		odd(n + 1)
	}
	if after := series(); after != before {
		t.Errorf("50 odd requests made %d series out of %d", after, before)
	}
}

// Nonsense is answered with a 4xx, or the connection is closed, and everybody
// else is served as before.
func TestAbuse_NonsenseHurtsNobody(t *testing.T) {
	w := start(t, smsYAML("1000/1h", ""))
	for _, text := range []string{
		"\r\n\r\n",
		"GET\r\n\r\n",
		"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
		"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n",
		"POST /v1/sms/send HTTP/1.1\r\nHost: x\r\nX-Phone: 1\r\nContent-Length: +5\r\n\r\nhello",
		"POST /v1/sms/send HTTP/1.1\r\nHost: x\r\nX-Phone: 1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
		"POST /v1/sms/send HTTP/1.1\r\nHost: x\r\nX-Phone: 1\r\nTransfer-Encoding: gzip\r\n\r\n",
		"POST /v1/sms/send HTTP/1.1\r\nHost: x\r\nX-Phone: 1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("x", 100<<10) + "\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	} {
		if status := rawStatus(t, w, text); status != 0 && (status < 400 || status > 499) && status != 501 && status != 505 {
			t.Errorf("%.60q is answered %d, want a 4xx or nothing", text, status)
		}
	}
	if got := w.send("p"); got != http.StatusOK {
		t.Errorf("after the nonsense a request is answered %d, want 200", got)
	}
}

// rawStatus sends text and returns the status of the answer, 0 if there is none.
func rawStatus(t *testing.T, w *weir, text string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testTimeout))
	io.WriteString(conn, text)
	conn.(*net.TCPConn).CloseWrite()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}

// Who waits for leave to send a body learns of the refusal instead.
func TestAbuse_RefusedBeforeTheBodyIsSent(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML("1/1h", ""))
	w.statuses("p", 1)
	status, _ := sendRaw(t, w, "POST /v1/sms/send HTTP/1.1\r\nHost: x\r\nX-Phone: p\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n")
	if status != http.StatusTooManyRequests {
		t.Errorf("the answer is %d, want 429 with no byte of the body sent", status)
	}
}

// A name in the log is a name, whatever it is made of.
func TestAbuse_LogLinesCannotBeForged(t *testing.T) {
	w := start(t, smsYAML("1/1h", ""))
	do(t, http.MethodGet, w.URL+"/%0a%7B%22message%22:%22forged%22%7D%0a", http.Header{"X-Request-Id": {"x\",\"message\":\"forged"}})
	w.WaitForLog("request", nil)
	if n := w.log.Count("forged"); n != 0 {
		t.Errorf("a client wrote %d lines of the log", n)
	}
}
