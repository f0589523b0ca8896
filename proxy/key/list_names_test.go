package key

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// nameOf returns the name that l has for the key of r.
func nameOf(t *testing.T, l *List, s *Spec, r Request) string {
	t.Helper()
	var v Value
	if err := s.Extract(r, &v); err != nil {
		t.Fatal(err)
	}
	return l.Name(&v)
}

func mustNames(t *testing.T, s *Spec, text string) *List {
	t.Helper()
	l, problems := ParseNames(s, text)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return l
}

func TestParseNames_Texts(t *testing.T) {
	phone := phoneAt(t, "header:X-Phone")
	l := mustNames(t, phone, "\ufeff# customers\r\n138 0013 8000 = pro  # ours\n\n+8613900139000=free\n008613800138000=pro\n")
	if l.Len() != 2 || !slices.Equal(l.Names(), []string{"pro", "free"}) {
		t.Errorf("%d values with the names %v; want 2 with pro and free", l.Len(), l.Names())
	}
	for number, want := range map[string]string{"+86 13800138000": "pro", "13900139000": "free", "13800138001": ""} {
		if got := nameOf(t, l, phone, header(number)); got != want {
			t.Errorf("%s: %q; want %q", number, got, want)
		}
	}
	user := of("header:X-Phone")
	l = mustNames(t, user, "a=b=pro\n")
	if got := nameOf(t, l, user, header("a=b")); got != "pro" {
		t.Errorf("a=b: %q; want pro", got)
	}
	if (*List)(nil).Name(&Value{}) != "" || (*List)(nil).Names() != nil {
		t.Error("no list has a name")
	}
}

// The smallest network holds. A client of several addresses has the name of any of them.
func TestParseNames_Networks(t *testing.T) {
	ip := of("client_ip")
	l := mustNames(t, ip, "192.0.2.0/24=free\n192.0.2.7=pro\n2001:db8::/32=free\n2001:db8:1::5=pro\n")
	for client, want := range map[string]string{
		"192.0.2.1/32": "free", "192.0.2.7/32": "pro", "198.51.100.1/32": "",
		"2001:db8:9::/64": "free", "2001:db9::/64": "",
	} {
		if got := nameOf(t, l, ip, client4(client)); got != want {
			t.Errorf("%s: %q; want %q", client, got, want)
		}
	}
	l = mustNames(t, ip, "2001:db8:1::5=pro\n")
	if got := nameOf(t, l, ip, client4("2001:db8:1::/64")); got != "pro" || l.Len() != 1 {
		t.Errorf("the client of 2001:db8:1::5: %q; want pro", got)
	}
}

func TestParseNames_SaysAllThatIsWrong(t *testing.T) {
	phone := phoneAt(t, "header:X-Phone")
	for _, c := range []struct {
		spec *Spec
		text string
		want []int // lines
	}{
		{phone, "13800138000\nx=pro\n13800138000=\n13800138000=pro plan\n13800138000=pro\n", []int{1, 2, 3, 4}},
		{phone, "13800138000=pro\n+8613800138000=pro\n+86 138 0013 8000=free\n", []int{3}},
		{of("client_ip"), "192.0.2.1=pro\n192.0.2.1=free\n192.0.2.1/24=free\n", []int{2, 3}},
		{of("global"), "x=pro\n", []int{1}},
	} {
		_, problems := ParseNames(c.spec, c.text)
		var lines []int
		for _, p := range problems {
			lines = append(lines, p.Line)
			secretless(t, p.Err, "138", "192.0.2.1,")
			if !errors.Is(p.Err, ErrSpec) && !errors.Is(p.Err, ErrTwice) || !strings.Contains(p.Err.Error(), "; ") {
				t.Errorf("%q: %v; want what to write instead", c.text, p.Err)
			}
		}
		if !slices.Equal(lines, c.want) {
			t.Errorf("%q: problems %v; want them at %v", c.text, problems, c.want)
		}
	}
}
