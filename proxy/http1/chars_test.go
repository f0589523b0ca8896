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
			{"host", hostChar, strings.IndexByte(alphanumeric+"-._~!$&'()*+;=%", c) >= 0},
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
		small := n.spelling()
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

// Every byte at every place of words of every length, beside lower.
func TestChars_EqualFoldLower(t *testing.T) {
	const word = "abcxyz-0/9:mnopqrs-t1"
	for length := range len(word) + 1 {
		small := word[:length]
		for at := range length {
			for i := range 256 {
				b := []byte(small)
				b[at] = byte(i)
				if got, want := equalFoldLower(b, small), lower(byte(i)) == small[at]; got != want {
					t.Errorf("%q and %q: %t; want %t", b, small, got, want)
				}
			}
		}
		if length > 0 && equalFoldLower(small, word[:length-1]) {
			t.Errorf("%q is taken for what is shorter", small)
		}
	}
}
