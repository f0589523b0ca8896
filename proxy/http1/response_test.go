package http1

import (
	"errors"
	"strings"
	"testing"
)

func TestResponse_Refused(t *testing.T) {
	ok := "HTTP/1.1 200 OK|"
	for _, c := range []struct {
		topic, raw string
		want       error
	}{
		{"status of four digits", "HTTP/1.1 2000 OK||", ErrStatusLine},
		{"status of two digits", "HTTP/1.1 20 OK||", ErrStatusLine},
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
		{"two lengths", ok + "Content-Length: 5|Content-Length: 6||", ErrContentLengthRepeated},
		{"a bad length", ok + "Content-Length: 5 5||", ErrContentLength},
		{"coding and length", ok + "Transfer-Encoding: chunked|Content-Length: 5||", ErrLengthAndTransferCoding},
		{"coding and length without a body", "HTTP/1.1 302 Found|Transfer-Encoding: chunked|Content-Length: 0||", ErrLengthAndTransferCoding},
		{"unknown coding", ok + "Transfer-Encoding: gzip, chunked||", ErrTransferCoding},
		{"coding in HTTP/1.0", "HTTP/1.0 200 OK|Transfer-Encoding: chunked||", ErrTransferCodingHTTP10},
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
		to   recipient
		body Framing
		want Framing
	}{
		{recipient{minor: 1}, Framing{NoBody, -1}, Framing{NoBody, -1}},
		{recipient{minor: 1}, Framing{NoBody, 0}, Framing{NoBody, 0}},
		{recipient{minor: 1}, Framing{FixedLength, 7}, Framing{FixedLength, 7}},
		{recipient{minor: 1}, Framing{Chunked, -1}, Framing{Chunked, -1}},
		{recipient{1, "GET", 200}, Framing{UntilClose, -1}, Framing{Chunked, -1}},
		{recipient{0, "GET", 200}, Framing{Chunked, -1}, Framing{UntilClose, -1}},
		{recipient{0, "GET", 200}, Framing{FixedLength, 7}, Framing{FixedLength, 7}},
		{recipient{1, "HEAD", 200}, Framing{FixedLength, 7}, Framing{NoBody, 7}},
		{recipient{1, "HEAD", 200}, Framing{Chunked, -1}, Framing{NoBody, -1}},
		{recipient{1, "GET", 204}, Framing{FixedLength, 7}, Framing{NoBody, -1}},
		{recipient{1, "GET", 304}, Framing{NoBody, 7}, Framing{NoBody, 7}},
		{recipient{1, "GET", 103}, Framing{FixedLength, 7}, Framing{NoBody, -1}},
	} {
		if got := outgoingFraming(c.to, c.body); got != c.want {
			t.Errorf("%+v %v: got %v; want %v", c.to, c.body, got, c.want)
		}
	}
}
