package http1

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/test/rounds"
)

const host = "|Host: a||"

// What is refused because others were attacked with it stands in faults_test.go.
func TestRequest_Refused(t *testing.T) {
	get, post := "GET / HTTP/1.1|", "POST / HTTP/1.1|Host: a|"
	for _, c := range []struct {
		topic, raw string
		want       error
	}{
		// Request line and target.
		{"two blanks before the version", "GET /  HTTP/1.1" + host, ErrVersion},
		{"tab for a blank", "GET\t/ HTTP/1.1" + host, ErrMethod},
		{"blank at the end of the request line", "GET / HTTP/1.1 " + host, ErrVersion},
		{"no version", "GET /" + host, ErrTarget},
		{"another minor version", "GET / HTTP/1.2" + host, ErrVersion},
		{"another major version", "GET / HTTP/2.0" + host, ErrMajorVersion},
		{"version in small letters", "GET / http/1.1" + host, ErrVersion},
		{"method too long", strings.Repeat("A", 33) + " / HTTP/1.1" + host, ErrMethod},
		{"other scheme", "GET ftp://a/ HTTP/1.1" + host, ErrTarget},
		{"CONNECT", "CONNECT a:1 HTTP/1.1" + host, ErrConnect},
		{"CONNECT to a path", "CONNECT /x HTTP/1.1" + host, ErrConnect},
		{"user in the target", "GET http://u@h/ HTTP/1.1" + host, ErrTarget},
		{"target without authority", "GET http:///x HTTP/1.1" + host, ErrTarget},
		{"target too long", "GET /" + strings.Repeat("a", 8192) + " HTTP/1.1" + host, ErrTargetTooLong},
		// Host.
		{"no Host, absolute target", "GET http://a/ HTTP/1.1||", ErrHostMissing},
		{"the same Host twice", get + "Host: a|Host: a||", ErrHostRepeated},
		{"empty Host", get + "Host:||", ErrHost},
		{"Host with a list", get + "Host: a,b||", ErrHost},
		{"Host with a long port", get + "Host: a:000080||", ErrHost},
		{"Host with a port only", get + "Host: :80||", ErrHost},
		{"Host with no address", get + "Host: [x]||", ErrHost},
		{"Host with IPv4 in brackets", get + "Host: [127.0.0.1]||", ErrHost},
		{"Host with a zone", get + "Host: [fe80::1%25eth0]||", ErrHost},
		{"Host with a backslash", get + `Host: a\b||`, ErrHost},
		{"Host with half an escape", get + "Host: a%2||", ErrHost},
		{"Host with no escape", get + "Host: a%2x||", ErrHost},
		{"Host with a percent sign", get + "Host: %||", ErrHost},
		{"Host with a port after half an escape", get + "Host: a%:80||", ErrHost},
		// Field lines.
		{"tab before a field", get + "Host: a|\tX: 1||", ErrFoldedLine},
		{"CR, CR, LF", get + "Host: a|X: a\r||", ErrLineEnd},
		{"LF ends the head", get + "Host: a|\n", ErrFieldName},
		// Body and expectation.
		{"the same length twice", post + "Content-Length: 5|Content-Length: 5||", ErrContentLengthRepeated},
		{"length of 19 digits", post + "Content-Length: 9223372036854775807||", ErrContentLength},
		{"another coding first", post + "Transfer-Encoding: gzip, chunked||", ErrTransferCoding},
		{"coding before a no-break space", post + "Transfer-Encoding: chunked\xa0||", ErrTransferCoding},
		{"two expectations", post + "Expect: 100-continue|Expect: 100-continue|Content-Length: 1||", ErrExpectation},
	} {
		if _, _, err := requestSplit(t, lined(c.raw)); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v; want %v", c.topic, err, c.want)
		}
	}
}

func TestRequest_Accepted(t *testing.T) {
	for _, c := range []struct{ topic, raw, want string }{
		{"plain", "GET /x?y HTTP/1.1" + host, "GET /x?y host=a path=/x query=truey 1 {0 -1} close=false [Host: a]"},
		{"empty query", "GET /? HTTP/1.1" + host, "GET /? host=a path=/ query=true 1 {0 -1} close=false [Host: a]"},
		{"query as it came", "GET /?a=%zz&a=1;'\"<>\\^`{} HTTP/1.1" + host, "GET /?a=%zz&a=1;'\"<>\\^`{} host=a path=/ query=truea=%zz&a=1;'\"<>\\^`{} 1"},
		{"the target's authority goes first", "GET http://b:81?q HTTP/1.1" + host, "GET http://b:81?q host=b:81 path=/ query=trueq 1 {0 -1} close=false [Host: a]"},
		{"https in any case", "GET HTTPS://b/x HTTP/1.1" + host, "GET HTTPS://b/x host=b path=/x query=false 1 {0 -1} close=false [Host: a]"},
		{"OPTIONS of a whole server", "OPTIONS * HTTP/1.1" + host, "OPTIONS * host=a path=* query=false 1 {0 -1} close=false [Host: a]"},
		{"OPTIONS of a whole server, absolute", "OPTIONS http://b HTTP/1.1" + host, "OPTIONS http://b host=b path=* query=false 1 {0 -1} close=false [Host: a]"},
		{"method in small letters is another", "get / HTTP/1.1" + host, "get / host=a path=/ query=false 1 {0 -1} close=false [Host: a]"},
		{"Host with escapes", "GET / HTTP/1.1|Host: %41b%2E:80||", "GET / host=%41b%2E:80 path=/"},
		{"IPv6", "GET / HTTP/1.1|Host: [::1]:80||", "GET / host=[::1]:80 path=/ query=false 1 {0 -1} close=false [Host: [::1]:80]"},
		{"HTTP/1.0 without Host", "GET / HTTP/1.0||", "GET / host= path=/ query=false 0 {0 -1} close=true"},
		{"HTTP/1.0 that stays", "GET / HTTP/1.0|Connection: Keep-Alive||", "GET / host= path=/ query=false 0 {0 -1} close=false [Connection: Keep-Alive]"},
		{"close before keep-alive", "GET / HTTP/1.1|Host: a|Connection: close, keep-alive||", "GET / host=a path=/ query=false 1 {0 -1} close=true [Host: a] [Connection: close, keep-alive]"},
		{"blanks around a value", "GET / HTTP/1.1|Host: \t a \t ||", "GET / host=a path=/ query=false 1 {0 -1} close=false [Host: a]"},
		{"empty value", "GET / HTTP/1.1|Host: a|X:||", "GET / host=a path=/ query=false 1 {0 -1} close=false [Host: a] [X: ]"},
		{"value beyond ASCII", "GET / HTTP/1.1|Host: a|X: \x80\xff||", "GET / host=a path=/ query=false 1 {0 -1} close=false [Host: a] [X: \x80\xff]"},
		{"long name", "GET / HTTP/1.1|Host: a|" + strings.Repeat("n", 300) + ": v||", "GET / host=a path=/ query=false 1 {0 -1} close=false [Host: a] [" + strings.Repeat("n", 300) + ": v]"},
		{"HEAD has a body if it says so", "HEAD / HTTP/1.1|Host: a|Content-Length: 30||", "HEAD / host=a path=/ query=false 1 {1 30} close=false [Host: a] [Content-Length: 30]"},
		{"length 0 is no body", "POST / HTTP/1.1|Host: a|Content-Length: 0||", "POST / host=a path=/ query=false 1 {0 0} close=false [Host: a] [Content-Length: 0]"},
		{"chunked in any case", "POST / HTTP/1.1|Host: a|Transfer-Encoding: \tChunked ||", "POST / host=a path=/ query=false 1 {2 -1} close=false [Host: a] [Transfer-Encoding: Chunked]"},
	} {
		r, rest, err := requestSplit(t, lined(c.raw)+"GET /next")
		if err != nil || rest != "GET /next" || !strings.HasPrefix(seen(r), c.want) {
			t.Errorf("%s: got %s, %q, %v; want %s", c.topic, seen(r), rest, err, c.want)
		}
	}
}

// A head of the maximum size is accepted, and one that has a byte more is not, wherever
// that byte is.
func TestRequest_HeadLimitIsExact(t *testing.T) {
	for _, raw := range []string{"GET / HTTP/1.1" + host, "GET / HTTP/1.1|Host: a|X-Y: " + strings.Repeat("v", 100) + "||"} {
		b := []byte(lined(raw) + "body")
		size := len(lined(raw))
		for limit := 1; limit <= size; limit++ {
			l := Limits{Head: limit}.forRequests()
			var r Request
			if n, err := r.Parse(b, &l); (n == size && err == nil) != (limit == size) || limit < size && !errors.Is(err, ErrTooLarge) {
				t.Errorf("limit %d for %d bytes: got %d, %v", limit, size, n, err)
			}
		}
	}
}

func TestRequest_LongFieldsAreKeptWhole(t *testing.T) {
	value := strings.Repeat("v", 70_000)
	l := Limits{Head: 1 << 20}.forRequests()
	var r Request
	if _, err := r.Parse([]byte(lined("GET / HTTP/1.1|Host: a|X: "+value+"||")), &l); err != nil {
		t.Fatal(err)
	}
	if got, _ := r.Fields.Lookup("x"); got != value {
		t.Errorf("got %d bytes; want %d", len(got), len(value))
	}
}

func TestRequest_ParsingAllocatesNothing(t *testing.T) {
	raw := []byte(lined("GET /v1/x?y=z HTTP/1.1|Host: example.com|User-Agent: curl/8|Accept: */*|X-Phone: 1||"))
	var r Request
	var head []byte
	l := limits()
	allocs := rounds.Allocations(100, func() {
		r = Request{Fields: r.Fields.Emptied(0)}
		head = append(head[:0], raw...) // the poisoned build overwrites what emptied fields had
		if n, err := r.Parse(head, l); n != len(raw) || err != nil {
			t.Fatal(n, err)
		}
		_, _ = r.Fields.Lookup("x-phone")
		_, _, _, _ = r.Method(), r.Path(), r.Host(), r.Expects()
		r.Fields.StripHopByHop()
	})
	if allocs != 0 && !reuse.Poisoned {
		t.Errorf("got %v allocations; want none", allocs)
	}
}

func BenchmarkRequest(b *testing.B) {
	raw := []byte(lined("GET /v1/x?y=z HTTP/1.1|Host: example.com|User-Agent: curl/8|Accept: */*|X-Phone: 1||"))
	var r Request
	l := limits()
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		r = Request{Fields: r.Fields.Emptied(0)}
		if _, err := r.Parse(raw, l); err != nil {
			b.Fatal(err)
		}
	}
}

func TestResponse_Refused(t *testing.T) {
	ok := "HTTP/1.1 200 OK|"
	for _, c := range []struct {
		topic, raw string
		want       error
	}{
		{"status below 100", "HTTP/1.1 099 Odd||", ErrStatusLine},
		{"another version", "HTTP/2.0 200 OK||", ErrStatusLine},
		{"another minor version", "HTTP/1.2 200 OK||", ErrStatusLine},
		{"no version", "ICY 200 OK||", ErrStatusLine},
		{"two blanks", "HTTP/1.1  200 OK||", ErrStatusLine},
		{"CR in the reason", "HTTP/1.1 200 O\rK||", ErrLineEnd},
		{"NUL in the reason", "HTTP/1.1 200 O\x00K||", ErrStatusLine},
		{"two empty lines before it", "||HTTP/1.1 200 OK||", ErrStatusLine},
		{"CR before LF twice", "HTTP/1.1 200 OK\r\r\n|", ErrLineEnd},
		{"blank in a name", ok + "Content- Length: 5||", ErrFieldName},
		{"only blanks before the colon", ok + " : 5||", ErrFoldedLine},
		{"folded after LF", "HTTP/1.1 200 OK\nX: a\n b\n\n", ErrFoldedLine},
		{"folded", ok + "X: a| b||", ErrFoldedLine},
		{"a bad length", ok + "Content-Length: 5 5||", ErrContentLength},
		{"coding and length without a body", "HTTP/1.1 302 Found|Transfer-Encoding: chunked|Content-Length: 0||", ErrLengthAndTransferCoding},
		{"unknown coding", ok + "Transfer-Encoding: gzip, chunked||", ErrTransferCoding},
		{"too many fields", ok + strings.Repeat("a: b|", 200) + "|", ErrTooManyFields},
		{"too large", ok + "X: " + strings.Repeat("a", 40_000) + "||", ErrTooLarge},
	} {
		if _, _, err := responseSplit(t, lined(c.raw), "GET"); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v; want %v", c.topic, err, c.want)
		}
	}
}

// Where a body ends depends on the method and the status before anything else.
func TestResponse_Framing(t *testing.T) {
	for _, c := range []struct {
		method, raw string
		want        Framing
		closes      bool
	}{
		{"GET", "HTTP/1.1 200 OK|Content-Length: 5||", Framing{FixedLength, 5}, false},
		{"GET", "HTTP/1.1 200 OK|Content-Length: 0||", Framing{FixedLength, 0}, false},
		{"GET", "HTTP/1.1 200 OK|Transfer-Encoding: chunked||", Framing{Chunked, -1}, false},
		{"GET", "HTTP/1.1 200 OK||", Framing{UntilClose, -1}, true},
		{"GET", "HTTP/1.1 200||", Framing{UntilClose, -1}, true},
		{"GET", "HTTP/1.1 200 OK\nContent-Length: 5\n\n", Framing{FixedLength, 5}, false},
		{"GET", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n|", Framing{Chunked, -1}, false},
		{"GET", "HTTP/1.1 200\nContent-Length: 5|\n", Framing{FixedLength, 5}, false},
		{"GET", "|HTTP/1.1 200 OK|Content-Length: 5||", Framing{FixedLength, 5}, false},
		{"GET", "\nHTTP/1.1 200 OK\nContent-Length: 5\n\n", Framing{FixedLength, 5}, false},
		{"GET", "HTTP/1.1 200 OK|Content-Length : 5|X\t : a||", Framing{FixedLength, 5}, false},
		{"GET", "HTTP/1.1 200 OK|Transfer-Encoding\t: chunked||", Framing{Chunked, -1}, false},
		{"GET", "HTTP/1.1 200 OK|Content-Length: 5|Content-Length: 5||", Framing{FixedLength, 5}, false},
		{"GET", "HTTP/1.1 999 Request denied|Content-Length: 5||", Framing{FixedLength, 5}, false},
		{"GET", "HTTP/1.1 600 Odd||", Framing{UntilClose, -1}, true},
		{"GET", "HTTP/1.1 205 X|Content-Length: 5||", Framing{NoBody, 0}, true},
		{"GET", "HTTP/1.1 205 X|Transfer-Encoding: chunked||", Framing{NoBody, 0}, true},
		{"GET", "HTTP/1.1 205 X|Content-Length: 0||", Framing{FixedLength, 0}, false},
		{"GET", "HTTP/1.1 200 |Connection: close|Content-Length: 5||", Framing{FixedLength, 5}, true},
		{"GET", "HTTP/1.0 200 OK|Content-Length: 5||", Framing{FixedLength, 5}, true},
		{"GET", "HTTP/1.0 200 OK|Connection: keep-alive|Content-Length: 5||", Framing{FixedLength, 5}, false},
		{"HEAD", "HTTP/1.1 200 OK|Content-Length: 100||", Framing{NoBody, 100}, false},
		{"HEAD", "HTTP/1.1 200 OK|Transfer-Encoding: chunked||", Framing{NoBody, -1}, false},
		{"HEAD", "HTTP/1.1 200 OK||", Framing{NoBody, -1}, false},
		{"GET", "HTTP/1.1 204 No Content|Content-Length: 5||", Framing{NoBody, -1}, false},
		{"GET", "HTTP/1.1 304 Not Modified|Content-Length: 5||", Framing{NoBody, 5}, false},
		{"GET", "HTTP/1.1 103 Early Hints|Content-Length: 5||", Framing{NoBody, -1}, false},
	} {
		r, rest, err := responseSplit(t, lined(c.raw)+"more", c.method)
		if err != nil || rest != "more" || r.Framing != c.want || r.Close != c.closes {
			t.Errorf("%s, %q: got %v, close %t, %q, %v; want %v, close %t", c.method, c.raw, r.Framing, r.Close, rest, err, c.want, c.closes)
		}
	}
}

// What is sent on is framed anew, and only by what is known of the body.
func TestFraming_Outgoing(t *testing.T) {
	for _, c := range []struct {
		to   message
		body Framing
		want Framing
	}{
		{message{minor: 1}, Framing{NoBody, -1}, Framing{NoBody, -1}},
		{message{minor: 1}, Framing{NoBody, 0}, Framing{NoBody, 0}},
		{message{minor: 1}, Framing{FixedLength, 7}, Framing{FixedLength, 7}},
		{message{minor: 1}, Framing{Chunked, -1}, Framing{Chunked, -1}},
		{message{minor: 1, method: "GET", status: 200}, Framing{UntilClose, -1}, Framing{Chunked, -1}},
		{message{minor: 0, method: "GET", status: 200}, Framing{Chunked, -1}, Framing{UntilClose, -1}},
		{message{minor: 0, method: "GET", status: 200}, Framing{FixedLength, 7}, Framing{FixedLength, 7}},
		{message{minor: 1, method: "HEAD", status: 200}, Framing{FixedLength, 7}, Framing{NoBody, 7}},
		{message{minor: 1, method: "HEAD", status: 200}, Framing{Chunked, -1}, Framing{NoBody, -1}},
		{message{minor: 1, method: "GET", status: 204}, Framing{FixedLength, 7}, Framing{NoBody, -1}},
		{message{minor: 1, method: "GET", status: 304}, Framing{NoBody, 7}, Framing{NoBody, 7}},
		{message{minor: 1, method: "GET", status: 103}, Framing{FixedLength, 7}, Framing{NoBody, -1}},
	} {
		if got := outgoingFraming(c.to, c.body); got != c.want {
			t.Errorf("%+v %v: got %v; want %v", c.to, c.body, got, c.want)
		}
	}
}
