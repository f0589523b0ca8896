package http1

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/rounds"
)

// The table against the grammar, letter by letter.
func TestChars_ClassesMatchTheGrammar(t *testing.T) {
	const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for i := range 256 {
		c := byte(i)
		for _, class := range []struct {
			name string
			bit  byte
			want bool
		}{
			{"token", tokenChar, strings.IndexByte(alphanumeric+"!#$%&'*+-.^_`|~", c) >= 0},
			{"target", targetChar, c > ' ' && c < 0x7f && c != '#'},
			{"value", valueChar, c == '\t' || c >= ' ' && c != 0x7f},
			{"host", hostChar, strings.IndexByte(alphanumeric+"-._~!$&'()*+;=", c) >= 0},
			{"hex", hexChar, strings.IndexByte("0123456789abcdefABCDEF", c) >= 0},
		} {
			if isClass(c, class.bit) != class.want {
				t.Errorf("%s %q: got %t", class.name, c, !class.want)
			}
		}
	}
}

// Every byte at every place among others, beside the table.
func TestChars_ValueLength(t *testing.T) {
	for _, among := range []byte{'x', ' ', '!', '~', 0x80, 0xff, '\t'} {
		for i := range 256 {
			for at := range 20 {
				b := bytes.Repeat([]byte{among}, 20)
				b[at] = byte(i)
				want := len(b)
				if !isClass(byte(i), valueChar) {
					want = at
				}
				if got := valueLength(b); got != want {
					t.Fatalf("%q: got %d; want %d", b, got, want)
				}
			}
		}
	}
}

func TestName_LookupIgnoresCase(t *testing.T) {
	for n := Other + 1; n < nameCount; n++ {
		small := strings.ToLower(n.String())
		if want := http.CanonicalHeaderKey(small); n.String() != want {
			t.Errorf("%s is written %s; want %s", small, n, want)
		}
		for _, s := range []string{small, strings.ToUpper(small), strings.ToUpper(small[:1]) + small[1:]} {
			if got := LookupName(s); got != n {
				t.Errorf("%s: got %d; want %d", s, got, n)
			}
		}
		for _, s := range []string{small + "x", "x" + small, small[1:], strings.ReplaceAll(small, "-", "_") + "_"} {
			if got := LookupName(s); got == n {
				t.Errorf("%s was taken for %s", s, small)
			}
		}
	}
	if nameCount > 64 {
		t.Errorf("%d names do not fit into a set of 64 bits", nameCount)
	}
}

// Every byte at every place of every well-known name, beside a map.
func TestName_LookupMatchesAMap(t *testing.T) {
	names := map[string]Name{}
	for n := Other + 1; n < nameCount; n++ {
		names[string(lowered([]byte(n.String())))] = n
	}
	for small := range names {
		for at := range len(small) {
			for i := range 256 {
				b := []byte(small)
				b[at] = byte(i)
				want := names[string(lowered(b))]
				if got := LookupName(string(b)); got != want {
					t.Errorf("LookupName(%q) = %d; want %d", b, got, want)
				}
				if b[at] == ':' {
					continue
				}
				if got, end := knownName(append(b, ": value of it"...)); got != want || got != Other && end != len(b) {
					t.Errorf("knownName(%q) = %d, %d; want %d", b, got, end, want)
				}
			}
		}
	}
}

// lowered returns a copy of b in lower case, letter by letter.
func lowered(b []byte) []byte {
	small := make([]byte, len(b))
	for i, c := range b {
		small[i] = lower(c)
	}
	return small
}

// A line that ends early is never taken for another one.
func TestName_KnownNameAtTheEndOfTheBuffer(t *testing.T) {
	for n := Other + 1; n < nameCount; n++ {
		line := n.String() + ": " + strings.Repeat("x", nameRow)
		for length := range len(line) + 1 {
			got, end := knownName([]byte(line[:length]))
			whole := length >= len(n.String())+8
			if got != Other && (got != n || end != len(n.String()) || length <= end) || got == Other && whole {
				t.Errorf("%q: got %d, %d; want %d", line[:length], got, end, n)
			}
		}
	}
}

// Every byte at every place of words of every length, beside lower.
func TestChars_EqualFoldLower(t *testing.T) {
	const word = "abcxyz-0/9:mnopqrs-t1"
	for length := range len(word) + 1 {
		small := word[:length]
		for at := range length {
			for i := range 256 {
				b := []byte(small)
				b[at] = byte(i)
				if got, want := equalFoldLower(string(b), small), lower(byte(i)) == small[at]; got != want {
					t.Errorf("%q and %q: %t; want %t", b, small, got, want)
				}
			}
		}
		if length > 0 && equalFoldLower(small, word[:length-1]) {
			t.Errorf("%q is taken for what is shorter", small)
		}
	}
}

var (
	fieldLineRule = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\\x00-\\x08\\x0a-\\x1f\\x7f]*)\r\n")
	plainNameRule = regexp.MustCompile("^[0-9A-Za-z-]+$")
)

// byRule parses field lines with regular expressions. whole is false if they do not end
// with an empty line.
func byRule(raw string) (lines []Field, unusual, whole bool, rest string) {
	for !strings.HasPrefix(raw, "\r\n") {
		m := fieldLineRule.FindStringSubmatch(raw)
		if m == nil {
			return lines, unusual, false, raw
		}
		lines = append(lines, Field{LookupName(m[1]), m[1], strings.Trim(m[2], " \t")})
		unusual = unusual || !plainNameRule.MatchString(m[1])
		raw = raw[len(m[0]):]
	}
	return lines, unusual, true, raw[2:]
}

// parsesByRule parses raw in two calls, and wants what the rule says.
func parsesByRule(t *testing.T, raw string, at int) {
	t.Helper()
	want, unusual, whole, rest := byRule(raw)
	var f Fields
	var s fieldParser
	all := fieldLimits{bytes: 1 << 20, lines: 1 << 20}
	done, err := s.parse([]byte(raw)[:at:at], &f, all)
	if !done && err == nil {
		done, err = s.parse([]byte(raw), &f, all)
	}
	if done != whole || done && err != nil {
		t.Fatalf("%q split at %d: done %t, %v; want %t", raw, at, done, err, whole)
	}
	if !done {
		return
	}
	if got := slices.Collect(f.All()); !slices.Equal(got, want) || raw[s.next:] != rest || f.HasUnusualNames() != unusual {
		t.Fatalf("%q split at %d: got %+v, %q, %t; want %+v, %q, %t", raw, at, got, raw[s.next:], f.HasUnusualNames(), want, rest, unusual)
	}
	f.DropSet(hopByHop)
	sent := ""
	for _, line := range want {
		if !line.ID.in(hopByHop) {
			sent += line.Name + ": " + line.Value + "\r\n"
		}
	}
	if got := written(t, &f); got != sent {
		t.Fatalf("%q: sent as %q; want %q", raw, got, sent)
	}
}

// Lines of all kinds of parts, in any order, beside the rule.
func TestFieldParser_MatchesTheRule(t *testing.T) {
	parts := []string{
		"\r\n", "\r\n", "\r\n", ": ", ": ", ":", ":\t", " ", "\t", "\r", "\n", "\x00", "\x7f", "\x80", "\xc3\xa9", "x", "Y-z", "a_b", "host", "Content-Type", "content-length",
		"Accept-Language", "X-Forwarded-For", "Proxy-Authorization", "Connection", "keep-alive", "12345678", strings.Repeat("v", 23), "Content-Typ", "content\rtype", "dat\x05", "{ate", "@ccept",
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same parts in every run
	for range rounds.Of(20_000) {
		var b strings.Builder
		for range 1 + random.IntN(3) {
			b.WriteString(parts[random.IntN(len(parts))])
			b.WriteString([]string{": ", ":", ":  "}[random.IntN(3)])
			for range random.IntN(4) {
				b.WriteString(parts[random.IntN(len(parts))])
			}
			b.WriteString("\r\n")
		}
		b.WriteString("\r\nrest")
		parsesByRule(t, b.String(), random.IntN(b.Len()))
	}
}

// FuzzFieldParser holds the parser, which looks at eight bytes at once, to the rule.
func FuzzFieldParser(f *testing.F) {
	f.Add([]byte(lined("Host: a|X-Y:\tb |accept-language: de||rest")), 5)
	f.Add([]byte(lined("a_b: \x80|Date:|||")), 9)
	f.Fuzz(func(t *testing.T, raw []byte, at int) { parsesByRule(t, string(raw), max(at, 0)%(len(raw)+1)) })
}
