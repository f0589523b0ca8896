package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A recordingUpstream is an upstream that notes each whole request, head and body as they
// are on the wire, and answers with bytes as they are.
type recordingUpstream struct {
	url  string
	seen chan string
}

// startRecording starts a script. An answer that says "Connection: close" ends its
// connection.
func startRecording(t *testing.T, answer string) *recordingUpstream {
	t.Helper()
	s := &recordingUpstream{seen: make(chan string, 1000)}
	s.url = "http://" + sockettest.Upstream(t, func(c net.Conn, _ *bufio.Reader) { s.serve(c, answer) })
	return s
}

func (u *recordingUpstream) serve(c net.Conn, answer string) {
	var sent strings.Builder
	in := bufio.NewReader(io.TeeReader(c, &sent))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return // a cut request is not a request
		}
		u.seen <- sent.String()
		sent.Reset()
		if _, err := io.WriteString(c, answer); err != nil || strings.Contains(answer, "Connection: close") {
			return
		}
	}
}

// last is the request that the upstream has seen.
func (u *recordingUpstream) last(t *testing.T) string {
	t.Helper()
	return await.Value(t, u.seen, "request at the upstream")
}

// notAsked wants nothing to have been sent to the upstream, beside what last has returned.
func (u *recordingUpstream) notAsked(t *testing.T) {
	t.Helper()
	select {
	case got := <-u.seen:
		t.Errorf("the upstream was sent %q", got)
	default:
	}
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// A rule is what becomes of a request.
type rule struct {
	name, said string
	status     int    // 0: the connection ends without an answer
	closes     bool   // whether the connection ends after the answer
	forwarded  string // what the upstream's request has in it; "" for anything
	never      string // what it has not in it; "" for anything
}

// obeyed checks rules, each on a connection of its own, against an upstream that
// is fine. A request that is answered with 400 or more must not have reached it, and
// gets a problem. Each has a line in the log, also what is no request.
func (over transport) obeyed(t *testing.T, rules []rule) {
	t.Helper()
	s := startRecording(t, fine)
	f := over.opened(t, forwardYAML(s.url, "", ""))
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			w := f.dial(r.said)
			w.TB = t
			answer, _ := w.WantStatus(r.status)
			if r.closes {
				w.WantClosed()
			} else if answer.Close {
				t.Error("the connection ends; want it kept")
			}
			if r.status >= 400 {
				if got := answer.Header.Get("Content-Type"); got != "application/problem+json" {
					t.Errorf("answered with %q; want a problem", got)
				}
				s.notAsked(t)
				return
			}
			got := s.last(t)
			if !strings.Contains(got, r.forwarded) || r.never != "" && strings.Contains(strings.ToLower(got), strings.ToLower(r.never)) {
				t.Errorf("forwarded as %q; want %q in it and not %q", got, r.forwarded, r.never)
			}
		})
	}
	f.until(func() bool { return len(f.lines("request")) >= len(rules) })
	if lines := f.lines("request"); len(lines) != len(rules) {
		t.Errorf("the log has %d lines; want %d", len(lines), len(rules))
	}
}

// rawLines is a request with these lines; "|" stands for the end of a line.
func rawLines(lines string) string {
	return strings.ReplaceAll(lines, "|", "\r\n")
}
