package wire

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

// huge are replies that announce more than Redis ever sends to a limiter.
func huge() []string {
	return []string{
		"$2147483647\r\n", "=9223372036854775807\r\n", "!33554433\r\n", "*2147483647\r\n", "~2147483647\r\n", ">2147483647\r\n",
		"%1073741824\r\n", "|1073741824\r\n", "*1048577\r\n", "*2\r\n:1\r\n$2147483647\r\n", "*2\r\n$1\r\na\r\n%2147483647\r\n",
		strings.Repeat("*1\r\n", 33), strings.Repeat("*2\r\n:1\r\n", 33), strings.Repeat("|1\r\n+a\r\n", 33),
		strings.Repeat("*1048576\r\n", 3), strings.Repeat("%1048576\r\n", 2), "+" + strings.Repeat("x", maxLine) + "x\r\n",
		"$-2\r\n", "*-2\r\n", "%-1\r\n", "$18446744073709551617\r\n", "$?\r\n", "*?\r\n", "?\r\n", "\r\n", "HTTP/1.1 200 OK\r\n",
	}
}

// A fixedConn is what has arrived on a connection.
type fixedConn struct {
	net.Conn
	io.Reader
}

func (c fixedConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// What comes before a reply that announces too much is read, and nothing of what comes after; by however little of it arrives at a
// time.
func TestBounded_RefusesWhatIsTooMuch(t *testing.T) {
	const before = "+OK\r\n*3\r\n:1\r\n$8\r\na\r\n$9\r\nb\r\n*-1\r\n%1\r\n+a\r\n*0\r\n|1\r\n+a\r\n:1\r\n*1\r\n_\r\n$0\r\n\r\n"
	for _, bad := range huge() {
		for name, pieces := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "with the end": iotest.DataErrReader,
		} {
			got, err := io.ReadAll(Bounded(fixedConn{Reader: io.MultiReader(strings.NewReader(before), pieces(strings.NewReader(bad+"secret")))}))
			if !errors.Is(err, ErrProtocol) || !strings.HasPrefix(string(got), before) || strings.Contains(string(got), "secret") {
				t.Errorf("%.40q %s: %v after %.60q", bad, name, err, got)
			}
			c := Bounded(fixedConn{Reader: strings.NewReader(bad)})
			_, _ = io.ReadAll(c)
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, ErrProtocol) {
				t.Errorf("%.40q: a read after the error: %v", bad, err)
			}
		}
	}
}

// Everything else passes as it is, in whatever pieces; it is read to its end by a Reader as well.
func TestBounded_PassesEverythingElse(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var all strings.Builder
		for range 1 + r.IntN(5) {
			writeAny(&all, r, 0)
		}
		text := all.String()
		split := r.IntN(len(text) + 1)
		src := io.MultiReader(strings.NewReader(text[:split]), iotest.HalfReader(strings.NewReader(text[split:])))
		got, err := io.ReadAll(Bounded(fixedConn{Reader: src}))
		if err != nil || string(got) != text {
			t.Fatalf("%q: %q, %v", text, got, err)
		}
		if _, err := readAll(strings.NewReader(text)); err != io.EOF {
			t.Fatalf("%q is read with %v", text, err)
		}
	}
}

// writeAny writes a reply of any type.
func writeAny(out *strings.Builder, r *rand.Rand, depth int) {
	texts := []string{"$5\r\na\r\n\r\n\r\n", "$0\r\n\r\n", "$-1\r\n", "*-1\r\n", ":-7\r\n", "+OK\r\n", "-ERR x\r\n", "_\r\n", ",1.5\r\n", "#t\r\n", "(99\r\n", "=5\r\ntxt:a\r\n", "!5\r\nERR a\r\n"}
	if depth > 3 || r.IntN(3) > 0 {
		out.WriteString(texts[r.IntN(len(texts))])
		return
	}
	kind, n := "*~%|>"[r.IntN(5)], r.IntN(4)
	values := n
	switch kind {
	case '%':
		values = 2 * n
	case '|':
		values = 2*n + 1
	}
	out.Write(AppendHeader(nil, kind, n))
	for range values {
		writeAny(out, r, depth+1)
	}
}
