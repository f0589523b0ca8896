package proxy

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
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

// What is no request, behind one: that is answered by the upstream, the rest ends the
// connection. Each has its line in the log and its figure.
func TestUnread_BehindARequest(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, fine)
		f := over.opened(t, forwardYAML(s.url, "", ""))
		w := f.dial(plainly + "garbage\r\n\r\n" + plainly)
		w.WantStatus(200)
		w.WantStatus(400)
		w.WantClosed()
		if got := s.last(t); !strings.HasPrefix(got, "GET ") {
			t.Errorf("the upstream was sent %q", got)
		}
		s.notAsked(t)
		f.until(func() bool { return len(f.lines("request")) >= 2 })
		if lines := f.lines("request"); len(lines) != 2 || lines[1]["status"] != 400.0 || lines[1]["error"] == "" || lines[1]["client"] != "127.0.0.1" {
			t.Errorf("the log has %v; want a line of each", lines)
		}
		if n := testutil.CollectAndCount(f.metrics.requests); n != 2 {
			t.Errorf("%d figures of requests; want one of each", n)
		}
	})
}
