package key

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func mustList(t *testing.T, s *Spec, text string) *List {
	t.Helper()
	l, problems := ParseList(s, text)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return l
}

func has(t *testing.T, l *List, s *Spec, r Request) bool {
	t.Helper()
	var v Value
	if err := s.Extract(r, &v); err != nil {
		t.Fatal(err)
	}
	return l.Has(&v)
}

func TestList_TextsInAnySpelling(t *testing.T) {
	phone := phoneAt(t, "header:X-Phone")
	l := mustList(t, phone, "\ufeff# testers\r\n\n 138 0013 8000   # ours\r\n+86-139-0013-9000\n+8613800138000")
	if l.Len() != 2 {
		t.Errorf("Len = %d; want 2", l.Len())
	}
	for number, want := range map[string]bool{"+86 13800138000": true, "008613900139000": true, "13800138001": false} {
		if got := has(t, l, phone, header(number)); got != want {
			t.Errorf("%s: %v; want %v", number, got, want)
		}
	}
	user := of("header:X-Phone", Trim, Lower)
	l = mustList(t, user, "Alice\nb#c\n")
	for name, want := range map[string]bool{"ALICE": true, "b#c": true, "b": false, "# x": false} {
		if got := has(t, l, user, header(name)); got != want {
			t.Errorf("%s: %v; want %v", name, got, want)
		}
	}
}

// Values that stand each by itself are whole: what would be a comment in a file belongs
// to them.
func TestListOf_TakesValuesWhole(t *testing.T) {
	user := of("header:X-Phone")
	values := []string{"alice #1", " bob ", "", "#carol"}
	plain, problems := ListOf(user, values)
	if len(problems) > 0 || plain.Len() != 3 {
		t.Fatalf("%d values, %v; want 3", plain.Len(), problems)
	}
	for name, want := range map[string]bool{"alice #1": true, "alice": false, "bob": true, "#carol": true, "carol": false} {
		if got := has(t, plain, user, header(name)); got != want {
			t.Errorf("%s is in the list: %v; want %v", name, got, want)
		}
	}
	for _, text := range []string{"hashed:k:AAAAAAAAAAAAAAAAAAAAAA", "hashed:s:AAAAAAAAAAAAAAAAAAAAAA:BBBBBBBBBBBBBBBB"} {
		if _, problems := ListOf(user, []string{text}); len(problems) != 1 || !strings.Contains(problems[0].Err.Error(), "push the file itself again") {
			t.Errorf("%s: %v; want that it is no value any more", text, problems)
		}
	}
	if _, problems := ListOf(of("client_ip"), []string{"192.0.2.1", "nowhere", "", "192.0.2.1/24"}); len(problems) != 2 || problems[0].Line != 2 || problems[1].Line != 4 {
		t.Errorf("problems %v; want those of values 2 and 4", problems)
	}
	if _, problems := ListOf(of("global"), values); len(problems) != 1 {
		t.Errorf("problems of the key global: %v; want one", problems)
	}
}

func TestList_Networks(t *testing.T) {
	ip := of("client_ip")
	l := mustList(t, ip, "192.0.2.1\n198.51.100.0/24 # office\n2001:db8:1::/48\n2001:db8:2::1\n::ffff:203.0.113.7\n")
	for client, want := range map[string]bool{
		"192.0.2.1/32": true, "192.0.2.2/32": false, "198.51.100.77/32": true, "198.51.101.1/32": false,
		"2001:db8:1:2::/64": true, "2001:db8:2::/64": true, "2001:db8:3::/64": false, "203.0.113.7/32": true,
	} {
		if got := has(t, l, ip, client4(client)); got != want {
			t.Errorf("%s: %v; want %v", client, got, want)
		}
	}
	if l.Len() != 5 {
		t.Errorf("Len = %d; want 5", l.Len())
	}
}

func TestList_Parts(t *testing.T) {
	phone := phoneAt(t, "header:X-Phone")
	country := &Spec{Name: "country", Of: phone, Part: Part{Kind: Country}}
	dial := &Spec{Name: "dial", Of: phone, Part: Part{Kind: DialCode}}
	near := &Spec{Name: "range", Of: phone, Part: Part{Prefix, 4}}
	for text, s := range map[string]*Spec{"CN\n001": country, "86\n+1": dial, "+86 138 0013": near} {
		if !has(t, mustList(t, s, text), s, header("13800138000")) || has(t, mustList(t, s, text), s, header("+49 30 901820")) {
			t.Errorf("%s: a list of %q has not what it says", s.Name, text)
		}
	}
}

func TestList_SaysAllThatIsWrong(t *testing.T) {
	phone := phoneAt(t, "header:X-Phone")
	for _, c := range []struct {
		spec *Spec
		text string
		want []int // lines
		len  int
	}{
		{phone, "x\n13800138000\n\n# y\n138\n", []int{1, 5}, 1},
		{of("client_ip"), "192.0.2.1/24\n300.1.1.1\nfe80::1%eth0\n10.0.0.0/33\n10.0.0.0/8\n::ffff:10.0.0.0/104\nx\n", []int{1, 2, 3, 4, 6, 7}, 1},
		{of("header:X-Phone", Digits), "abc\n1\n", []int{1}, 1},
		{&Spec{Of: phone, Part: Part{Kind: Country}}, "cn\nChina\nCN\n", []int{1, 2}, 1},
		{&Spec{Of: phone, Part: Part{Kind: DialCode}}, "x\n+86\n", []int{1}, 1},
		{&Spec{Name: "pair", Join: []*Spec{phone}}, "x\n", []int{1}, 0},
		{of("global"), "x\n", []int{1}, 0},
	} {
		l, problems := ParseList(c.spec, c.text)
		var lines []int
		for _, p := range problems {
			lines = append(lines, p.Line)
			if !errors.Is(p.Err, ErrSpec) {
				t.Errorf("%q: %v; want ErrSpec", c.text, p.Err)
			}
			secretless(t, p.Err, "China", "300.1", "138")
		}
		if !slices.Equal(lines, c.want) || l.Len() != c.len {
			t.Errorf("%q: problems at %v, %d entries; want %v, %d", c.text, lines, l.Len(), c.want, c.len)
		}
	}
}

func TestList_HasNotWhatIsNotItsKey(t *testing.T) {
	phone := phoneAt(t, "header:X-Phone")
	l := mustList(t, phone, "13800138000")
	var v Value
	if (*List)(nil).Has(&v) || l.Has(&v) {
		t.Error("a list has a Value without a key")
	}
	phone.OnMissing = Skip
	if has(t, l, phone, header()) {
		t.Error("a list has a key that is skipped")
	}
	phone.OnMissing = Shared
	if has(t, l, phone, header()) {
		t.Error("a list has a key that is missing")
	}
	other := of("query:phone")
	phone.OnMissing, phone.Fallback = Use, other
	r := request{query: map[string][]string{"phone": {"+8613800138000"}}}
	if has(t, l, phone, r) {
		t.Error("a list has a text of another key that stands in")
	}
	pair := &Spec{Join: []*Spec{phone, phone}}
	if has(t, l, pair, header("13800138000")) {
		t.Error("a list has a joined key")
	}
	words := of("json:/a")
	l = mustList(t, words, "null\ntrue\n42\n")
	for value, want := range map[string]bool{`"null"`: true, `null`: false, `"true"`: true, `"42"`: true, `42`: true} {
		if got := has(t, l, words, sendsJSON(`{"a":`+value+`}`)); got != want {
			t.Errorf("%s: %v; want %v", value, got, want)
		}
	}
}

// Who is let through must have the address, not only the network it counts under.
func TestList_Exactly(t *testing.T) {
	ip := of("client_ip")
	l := mustList(t, ip, "2001:db8:2::1\n2001:db8:3::/48\n192.0.2.1\n")
	var v Value
	for client, want := range map[string]bool{
		"2001:db8:2::1": true, "2001:db8:2::2": false, "2001:db8:3:7::9": true, "2001:db8:4::1": false, "192.0.2.1": true, "192.0.2.2": false,
	} {
		addr := netip.MustParseAddr(client)
		network, _ := addr.Prefix(min(addr.BitLen(), 64))
		if err := ip.Extract(client4(network.String()), &v); err != nil {
			t.Fatal(err)
		}
		if got := l.HasExactly(&v, addr); got != want {
			t.Errorf("%s: %v; want %v", client, got, want)
		}
	}
	if l.HasExactly(&v, netip.Addr{}) {
		t.Error("a client without an address is on the list")
	}
	name := of("header:X-Phone")
	if err := name.Extract(header("a"), &v); err != nil {
		t.Fatal(err)
	}
	if !mustList(t, name, "a").HasExactly(&v, netip.Addr{}) {
		t.Error("a text is not on its list")
	}
}
