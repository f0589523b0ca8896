package decisions

import (
	"strings"
	"testing"
)

// A label keeps what fits, of each of its texts.
func TestLabel(t *testing.T) {
	long := strings.Repeat("a", 50) + strings.Repeat("b", 50)
	for _, c := range []struct {
		texts []string
		want  string
	}{
		{[]string{"+8613800138000"}, "+8613800138000"},
		{[]string{""}, ""},
		{[]string{"192.0.2.1", "+8613800138000"}, "192.0.2.1\x00+8613800138000"},
		{[]string{"2001:db8:1234:5678::/64", "+8613800138000"}, "2001:db8:1234:5678::/64\x00+8613800138000"},
		{[]string{long}, strings.Repeat("a", 19) + "*" + strings.Repeat("b", 19)},
		{[]string{long, "c"}, "aaaaaaaaaaa*bbbbbbbbbbb\x00c"},
		{[]string{"a", "b", "c"}, "a\x00b\x00c"},
	} {
		var l Label
		for i, text := range c.texts {
			l.AddPart(text, len(c.texts)-i-1)
		}
		if got := string(l.text[:l.size]); got != c.want {
			t.Errorf("%q: %q; want %q", c.texts, got, c.want)
		}
	}
	for n := range 17 { // never beyond its size, however many there are
		var l Label
		for i := range n {
			l.AddPart(long, n-i-1)
		}
		if int(l.size) > labelBytes {
			t.Errorf("%d texts take %d bytes", n, l.size)
		}
	}
}
