package wire

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/redis/go-redis/v9"
)

// said is what a reply says.
func said(p *Reply) string { return fmt.Sprintf("%v %v", p.Ints, p.Err) }

// readAll reads all replies that there are.
func readAll(src io.Reader) (all []string, err error) {
	r, p := NewReader(src), &Reply{}
	for {
		if err := r.Read(p); err != nil {
			return all, err
		}
		all = append(all, said(p))
	}
}

// What Redis may say, however little of it arrives at a time.
func TestRESP_Reads(t *testing.T) {
	long := strings.Repeat("x", 24<<10)
	for in, want := range map[string]string{
		"*3\r\n:1\r\n:-2\r\n:+3\r\n":                              "[1 -2 3] <nil>",
		"*2\r\n:9223372036854775807\r\n:-9223372036854775808\r\n": said(&Reply{Ints: []int64{math.MaxInt64, math.MinInt64}}),
		"*0\r\n":                               "[] <nil>",
		"-NOSCRIPT No matching\r\n":            "[] NOSCRIPT No matching",
		"!10\r\nERR a\r\nfoo\r\n":              "[] " + ErrReply.Error(),
		"*-1\r\n":                              "[] " + ErrReply.Error(),
		"$-1\r\n":                              "[] " + ErrReply.Error(),
		"_\r\n":                                "[] " + ErrReply.Error(),
		":7\r\n":                               "[7] <nil>",
		"+OK\r\n":                              "[] " + ErrReply.Error(),
		"$2\r\n\r\n\r\n":                       "[] " + ErrReply.Error(),
		"$0\r\n\r\n":                           "[] " + ErrReply.Error(),
		"=5\r\ntxt:a\r\n":                      "[] " + ErrReply.Error(),
		",1.5\r\n":                             "[] " + ErrReply.Error(),
		"#t\r\n":                               "[] " + ErrReply.Error(),
		"(12345678901234567890123\r\n":         "[] " + ErrReply.Error(),
		"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n": "[] " + ErrReply.Error(),
		"~2\r\n:1\r\n:2\r\n":                   "[] " + ErrReply.Error(),
		"*2\r\n:1\r\n$1\r\na\r\n":              "[1] " + ErrReply.Error(),
		"*2\r\n*2\r\n:5\r\n*0\r\n:1\r\n":       "[1] " + ErrReply.Error(),
		"*2\r\n$-1\r\n:1\r\n":                  "[1] " + ErrReply.Error(),
		">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n*1\r\n:4\r\n":               "[4] <nil>",
		"|1\r\n+ttl\r\n:3\r\n*1\r\n:4\r\n":                                 "[4] <nil>",
		"*2\r\n|1\r\n+ttl\r\n:3\r\n:8\r\n:9\r\n":                           "[9] " + ErrReply.Error(),
		"$" + strconv.Itoa(len(long)) + "\r\n" + long + "\r\n":             "[] " + ErrReply.Error(),
		"-ERR " + long + "\r\n":                                            "[] ERR " + long,
		"*2\r\n:1\r\n$" + strconv.Itoa(len(long)) + "\r\n" + long + "\r\n": "[1] " + ErrReply.Error(),
	} {
		whole := in + "*1\r\n:1\r\n" // what follows is read, too
		wants := []string{want, "[1] <nil>"}
		for name, src := range map[string]io.Reader{
			"at once": strings.NewReader(whole), "byte by byte": iotest.OneByteReader(strings.NewReader(whole)),
			"with the end": iotest.DataErrReader(strings.NewReader(whole)),
		} {
			if got, err := readAll(src); !slices.Equal(got, wants) || err != io.EOF {
				t.Errorf("%.60q %s: %.300s, %v; want %.300s", in, name, fmt.Sprintf("%q", got), err, fmt.Sprintf("%q", wants))
			}
		}
	}
}

// What no Redis says ends the connection: nobody knows where the next reply begins.
func TestRESP_RefusesWhatIsNotTheProtocol(t *testing.T) {
	for _, in := range []string{
		"\r\n", "hello\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "\x15\x03\x01\x00\x02\x02\r\n",
		"*\r\n", "*x\r\n", "*-2\r\n", "*1 \r\n", "*99999999999999999999\r\n", "*1048577\r\n", "*?\r\n", "$?\r\n",
		"*1\r\n:\r\n", "*1\r\n:1x\r\n", "*1\r\n:-\r\n", "*1\r\n:9223372036854775808\r\n", "*1\r\n:-9223372036854775809\r\n",
		"*1\r\n:18446744073709551617\r\n", "*1\n:1\n", "*1\r\n:1\r\r\n", "$1\r\nab\r\n", "$1\r\na\n\n", "$-2\r\n", "%-3\r\n",
		"~1048577\r\n", "%9223372036854775807\r\n", "|9223372036854775807\r\n", strings.Repeat("*1048576\r\n", 4),
		"-" + strings.Repeat("x", maxLine+maxLine) + "\r\n", "*1\r\n?\r\n", ".\r\n",
	} {
		if got, err := readAll(strings.NewReader(in)); len(got) > 0 || !errors.Is(err, ErrProtocol) {
			t.Errorf("%.40q: %d replies, %v; want %v", in, len(got), err, ErrProtocol)
		}
	}
	for _, in := range []string{"*1\r\n:1\r", "*2\r\n:1\r\n:", "*1\r"} {
		if got, err := readAll(strings.NewReader(in)); len(got) > 0 || err != io.ErrUnexpectedEOF {
			t.Errorf("%q: %q, %v; want %v", in, got, err, io.ErrUnexpectedEOF)
		}
	}
	for _, in := range []string{"*2\r\n:1\r\n", "$5\r\nabc"} { // nothing is kept of what was read
		if got, err := readAll(strings.NewReader(in)); len(got) > 0 || err != io.EOF {
			t.Errorf("%q: %q, %v; want %v", in, got, err, io.EOF)
		}
	}
	if _, err := readAll(iotest.ErrReader(iotest.ErrTimeout)); err != iotest.ErrTimeout {
		t.Errorf("an error of the connection: %v", err)
	}
}

// Errors are those of Redis, as the client knows them.
func TestRESP_ErrorsAreRedisErrors(t *testing.T) {
	var p Reply
	if err := NewReader(strings.NewReader("-LOADING Redis is loading\r\n")).Read(&p); err != nil || !redis.HasErrorPrefix(p.Err, "LOADING") {
		t.Errorf("%v, %v", p.Err, err)
	}
}

// The longest line is read, and what Redis sends does not make the buffer grow.
func TestRESP_KeepsItsBufferSmall(t *testing.T) {
	r := NewReader(strings.NewReader("-" + strings.Repeat("x", maxLine-len("-\r")) + "\r\n*0\r\n"))
	var p Reply
	for range 2 {
		if err := r.Read(&p); err != nil {
			t.Fatal(err)
		}
	}
	_ = r.Read(&p)
	if n := r.in.Size(); n > 128<<10 {
		t.Errorf("%d bytes kept", n)
	}
}

// FuzzRESP: whatever arrives, in whatever pieces, is read alike and as a reader reads
// it that has all of it; without a panic, and in bounded memory.
func FuzzRESP(f *testing.F) {
	for _, s := range []string{
		"*3\r\n:1\r\n:-2\r\n:3\r\n", "-ERR x\r\n:1\r\n", "%1\r\n+a\r\n*2\r\n:1\r\n$3\r\nabc\r\n*1\r\n:1\r\n",
		">1\r\n:1\r\n*1\r\n:4\r\n", "|1\r\n+t\r\n:3\r\n*1\r\n:4\r\n", "*-1\r\n$-1\r\n_\r\n", "!3\r\nabc\r\n", "*1\n:1\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 200 || crowd.Match(in) {
			return
		}
		want, wantErr := referenceAll(in)
		for split := range len(in) + 1 {
			r := NewReader(io.MultiReader(bytes.NewReader(in[:split]), bytes.NewReader(in[split:])))
			var got []string
			var p Reply
			err := r.Read(&p)
			for ; err == nil; err = r.Read(&p) {
				got = append(got, said(&p))
			}
			if !slices.Equal(got, want) || errors.Is(err, ErrProtocol) != wantErr {
				t.Fatalf("%q split at %d: %q, %v; want %q, a fault: %v", in, split, got, err, want, wantErr)
			}
			if r.in.Size() > 2*maxLine || cap(p.Ints) > 4*(len(in)+1) {
				t.Fatalf("%q: %d bytes and %d numbers kept", in, r.in.Size(), cap(p.Ints))
			}
		}
	})
}

// crowd is what is refused for its number alone, which the reference does not count.
var crowd = regexp.MustCompile(`[*~%|>][+]?[0-9]{6,}`)

// A reference reads by recursion what lies before it as a whole.
type reference struct{ rest []byte }

var errShort = errors.New("there is no more")

func referenceAll(in []byte) (all []string, fault bool) {
	r := &reference{in}
	for {
		got, err := r.reply()
		if err != nil {
			return all, err != errShort
		}
		all = append(all, got)
	}
}

func (r *reference) reply() (string, error) {
	for {
		kind, v, err := r.value()
		switch {
		case err != nil:
			return "", err
		case kind == '>', kind == '|':
			continue
		case kind == '-':
			return fmt.Sprint("[] ", v), nil
		case kind == ':':
			return said(&Reply{Ints: []int64{v.(int64)}}), nil
		case kind != '*' || v == nil:
			return fmt.Sprint("[] ", ErrReply), nil
		}
		ints, odd := []int64{}, error(nil)
		for _, e := range v.([]any) {
			if n, ok := e.(int64); ok {
				ints = append(ints, n)
			} else {
				odd = ErrReply
			}
		}
		return said(&Reply{Ints: ints, Err: odd}), nil
	}
}

func (r *reference) line() (string, error) {
	line, rest, found := bytes.Cut(r.rest, []byte("\n"))
	if !found {
		return "", errShort
	}
	text, ended := strings.CutSuffix(string(line), "\r")
	if !ended || strings.Contains(text, "\r") {
		return "", ErrProtocol
	}
	r.rest = rest
	return text, nil
}

// value is a whole number, a list, nil, or anything else as a text.
func (r *reference) value() (kind byte, v any, err error) {
	text, err := r.line()
	if err != nil || text == "" {
		return 0, nil, cmp.Or(err, ErrProtocol)
	}
	kind, text = text[0], text[1:]
	if strings.IndexByte("+-,#_(", kind) >= 0 {
		return kind, text, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || len(strings.TrimLeft(text, "+-")) > 19:
		return 0, nil, ErrProtocol
	case kind == ':':
		return kind, n, nil
	case n == -1 && (kind == '$' || kind == '*'):
		return kind, nil, nil
	case n < 0:
		return 0, nil, ErrProtocol
	}
	switch kind {
	case '$', '!', '=':
		if int64(len(r.rest)) < n {
			return 0, nil, errShort
		}
		text, r.rest = string(r.rest[:n]), r.rest[n:]
		end, err := r.line()
		if err == nil && end != "" {
			err = ErrProtocol
		}
		return kind, text, err
	case '*', '~', '>':
		v, err := r.values(n)
		return kind, v, err
	case '%', '|':
		v, err := r.values(2 * n)
		return kind, v, err
	}
	return 0, nil, ErrProtocol
}

// values are so many, of which none is an attribute: that belongs to what follows it.
func (r *reference) values(n int64) (any, error) {
	all := []any{}
	for range n {
		kind, v, err := r.value()
		attributed := false
		for ; err == nil && kind == '|'; kind, v, err = r.value() {
			attributed = true
		}
		if err != nil {
			return nil, err
		}
		if attributed || kind != ':' {
			v = "odd"
		}
		all = append(all, v)
	}
	return all, nil
}

// Numbers are read alike whether they arrive as a whole or byte by byte, whatever their
// length and whatever follows them.
func TestRESP_NumbersOfAllLengths(t *testing.T) {
	for digits := range 22 {
		for _, sign := range []string{"", "-", "+"} {
			for _, first := range []string{"", "0", "9"} {
				for _, end := range []string{"\r\n", "\n", "\r", "\r\r\n", "x\r\n", "/\r\n", ":\r\n", " \r\n", ""} {
					in := "*2\r\n:" + sign + first + strings.Repeat("7", digits) + end + ":1\r\n*1\r\n:2\r\n"
					want, wantErr := readAll(iotest.OneByteReader(strings.NewReader(in)))
					for cut := range len(in) {
						got, err := readAll(io.MultiReader(strings.NewReader(in[:cut]), strings.NewReader(in[cut:])))
						if !slices.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
							t.Fatalf("%q, cut at %d: %q %v, want %q %v", in, cut, got, err, want, wantErr)
						}
					}
				}
			}
		}
	}
	got, err := readAll(strings.NewReader("*3\r\n:999999999999999999\r\n:9223372036854775807\r\n:1700000000000\r\n"))
	if err != io.EOF || !slices.Equal(got, []string{"[999999999999999999 9223372036854775807 1700000000000] <nil>"}) {
		t.Errorf("%q %v", got, err)
	}
}
