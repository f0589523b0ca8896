package http1

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
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
			if got := nameOf(s); got != n {
				t.Errorf("%s: got %d; want %d", s, got, n)
			}
		}
		for _, s := range []string{small + "x", "x" + small, small[1:], strings.ReplaceAll(small, "-", "_") + "_"} {
			if got := nameOf(s); got == n {
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
				if got := nameOf(string(b)); got != want {
					t.Errorf("nameOf(%q) = %d; want %d", b, got, want)
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
