//go:build parsers

package parsers

import (
	"bytes"
	"math/rand/v2"
	"strings"
)

// requests are what variations of requests begin with. A bar is CRLF.
func requests() []string {
	return []string{
		"GET /x?y=%zz HTTP/1.1|Host: a||",
		"GET http://b:80/x?y HTTP/1.1|Host: b:80|Accept: */*||",
		"OPTIONS * HTTP/1.1|Host: a||",
		"POST / HTTP/1.1|Host: a|Content-Length: 5||hello",
		"PUT /long HTTP/1.1|Host: a|content-length: 12|X-A:  1 ||hello, world",
		"POST /c HTTP/1.1|Host: a|Transfer-Encoding: chunked||5;x=y|hello|00a|0123456789|0|A: b||",
		"POST /d HTTP/1.1|Host: [::1]:8|transfer-encoding: Chunked|Trailer: X-Sum||1|x|0||",
		"DELETE /e HTTP/1.1|Host: a|Connection: keep-alive, X-Mine|X-Mine: 1||",
		"HEAD /f HTTP/1.0|Connection: keep-alive||",
		"GET /g HTTP/1.0||",
		"GET /h HTTP/1.1|Host: a|Connection: close||",
		"POST /i HTTP/1.1|Host: a|Expect: 100-continue|Content-Length: 2||hi",
		"PATCH /j HTTP/1.1|Host: a|Content-Length: 0|X: \x80\xff||",
		"GET /k HTTP/1.1|Host: a|Cookie: a=b; c=d|Cookie: e=f|User-Agent: x (y; z)||",
	}
}

// answers are what variations of answers begin with.
func answers() []string {
	return []string{
		"HTTP/1.1 200 OK|Content-Length: 5||hello",
		"HTTP/1.1 200 OK||all of it",
		"HTTP/1.0 200 OK|Content-Length: 2||ok",
		"HTTP/1.1 200 OK|Transfer-Encoding: chunked||5;x=y|hello|0|X-Sum: 1||",
		"HTTP/1.1 204 No Content|X-A: 1||",
		"HTTP/1.1 304 Not Modified|ETag: \"x\"|Content-Length: 5||",
		"HTTP/1.1 103 Early Hints|Link: </x>||HTTP/1.1 200 OK|Content-Length: 0||",
		"HTTP/1.1 100 Continue||HTTP/1.1 404 Not Found|Content-Length: 2||no",
		"HTTP/1.1 302 Found|Location: /y|Connection: close|Content-Length: 1||x",
		"HTTP/1.1 500 |content-length: 3|Set-Cookie: a=b|Set-Cookie: c=d||err",
		"HTTP/1.1 200 A Reason: with more\t|Content-Length: 1||x",
		"HTTP/1.1 599 Odd|Transfer-Encoding: CHUNKED||0||",
	}
}

// lines are field lines that some reader has taken for another than they are.
func lines() []string {
	return []string{
		"Content-Length: 5", "Content-Length: 0", "Content-Length: +5", "Content-Length: 5, 5", "Content-Length: 0x5", "Content-Length: 05", "Content-Length : 5",
		"Content-Length:", "Content-Length: 18446744073709551621", "Content-Length: 5 5", "Content-Length: -1", "Content-Length: 1_0", "Content-Length: \v5",
		"Transfer-Encoding: chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: ,chunked", "Transfer-Encoding:",
		"Transfer-Encoding : chunked", "Transfer-Encoding: \vchunked", "Transfer-Encoding: gzip", "Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked\x85",
		" Transfer-Encoding: chunked", "\tX: 1", "Host: b", "Host:", "Host: a b", "Connection: close", "Connection: upgrade", "Upgrade: websocket", "Upgrade: h2c",
		"Expect: foo", ": x", "x", "X\x85: v", "X: \x00", "X: a\rb", "X: a\nContent-Length: 5", "X: a\r", "Trailer: a", "TE: trailers", "X_Y: 1", "Keep-Alive: 5", "Connection: ,",
	}
}

// pieces are bytes that stand between the parts of a message, or look like them.
func pieces() []string {
	return []string{
		"\r\n", "\n", "\r", "\r\n\r\n", " ", "\t", "\v", "\f", "\x00", "\x7f", "\x80", "\xff", "\xa0", ":", ";", ",", "\"", "#", "%", "?", "*", "/", "\\", "0", "5", "a", "F", "G",
		"0x", "+", "-", "_", "0\r\n\r\n", "0\r\n", "1\r\nx\r\n", ";e=\"\r\n", "HTTP/1.0", "HTTP/1.1", "HTTP/2.0", " HTTP/1.1", "http://c", "GET ", "GET /s HTTP/1.1\r\nHost: a\r\n\r\n",
		"ffffffffffffffff", "00000000000000000", "fffffffffffffffff",
	}
}

// varied is one message, or some behind one another, changed a little or much.
func varied(random *rand.Rand, from []string) []byte {
	var raw []byte
	for range 1 + random.IntN(3)*random.IntN(2) {
		one := []byte(strings.ReplaceAll(from[random.IntN(len(from))], "|", "\r\n"))
		if random.IntN(4) > 0 {
			for range 1 + random.IntN(3) {
				one = changed(random, one)
			}
		}
		raw = append(raw, one...)
	}
	return raw
}

// changed is raw with one change.
func changed(random *rand.Rand, raw []byte) []byte {
	at, to := random.IntN(len(raw)+1), 0
	to = min(at+random.IntN(3)*random.IntN(4), len(raw))
	switch random.IntN(8) {
	case 0, 1, 2: // another field line
		line := lines()[random.IntN(len(lines()))] + "\r\n"
		return spliced(raw, lineStart(random, raw), 0, line)
	case 3: // a line less, or twice
		from := lineStart(random, raw)
		end := bytes.IndexByte(raw[from:], '\n') + 1
		if random.IntN(2) == 0 {
			return spliced(raw, from, 0, string(raw[from:from+end]))
		}
		return spliced(raw, from, end, "")
	case 4: // other bytes
		return spliced(raw, at, to-at, pieces()[random.IntN(len(pieces()))])
	case 5: // any byte
		return spliced(raw, at, min(1, len(raw)-at), string([]byte{byte(random.IntN(256))}))
	case 6: // other letters
		if at < len(raw) {
			raw = bytes.Clone(raw)
			raw[at] ^= 0x20
		}
		return raw
	default: // another piece between two bytes
		return spliced(raw, at, 0, pieces()[random.IntN(len(pieces()))])
	}
}

// lineStart is where some line begins.
func lineStart(random *rand.Rand, raw []byte) int {
	starts := []int{0}
	for i, c := range raw {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts[random.IntN(len(starts))]
}

func spliced(raw []byte, at, drop int, in string) []byte {
	return append(append(append(make([]byte, 0, len(raw)+len(in)), raw[:at]...), in...), raw[at+drop:]...)
}
