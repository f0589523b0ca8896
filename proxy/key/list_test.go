package key

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/rounds"
)

func mustList(t *testing.T, s *Spec, text string) *List {
	t.Helper()
	l, problems := ParseList(s, Lines(text))
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

// A sender makes requests that carry a text for the key of Spec.
type sender struct {
	*Spec
	send func(text string) Request
}

// carry is the sender of texts in a header, and come that of requests from addresses.
func carry(s *Spec) sender { return sender{s, func(text string) Request { return header(text) }} }
func come(s *Spec) sender  { return sender{s, func(client string) Request { return client4(client) }} }

// wants checks what a list has for the keys of requests of s.
func wants[T comparable](t *testing.T, s sender, has func(*Value) T, want map[string]T) {
	t.Helper()
	for text, want := range want {
		var v Value
		if err := s.Extract(s.send(text), &v); err != nil {
			t.Fatal(text, err)
		}
		if got := has(&v); got != want {
			t.Errorf("%s: %v; want %v", text, got, want)
		}
	}
}

func TestList_TextsInAnySpelling(t *testing.T) {
	phone := phoneAt(t, "header:X-Phone")
	l := mustList(t, phone, "\ufeff# testers\r\n\n 138 0013 8000   # ours\r\n+86-139-0013-9000\n+8613800138000")
	if l.Len() != 2 {
		t.Errorf("Len = %d; want 2", l.Len())
	}
	wants(t, carry(phone), l.Has, map[string]bool{"+86 13800138000": true, "008613900139000": true, "13800138001": false})
	user := of("header:X-Phone", Trim, Lower)
	l = mustList(t, user, "Alice\nb#c\n")
	wants(t, carry(user), l.Has, map[string]bool{"ALICE": true, "b#c": true, "b": false, "# x": false})
}

// Values that stand each by itself are whole: what would be a comment in a file belongs
// to them.
func TestListOf_TakesValuesWhole(t *testing.T) {
	user := of("header:X-Phone")
	values := []string{"alice #1", " bob ", "", "#carol"}
	plain, problems := ParseList(user, slices.Values(values))
	if len(problems) > 0 || plain.Len() != 3 {
		t.Fatalf("%d values, %v; want 3", plain.Len(), problems)
	}
	wants(t, carry(user), plain.Has, map[string]bool{"alice #1": true, "alice": false, "bob": true, "#carol": true, "carol": false})
	for _, text := range []string{"hashed:k:AAAAAAAAAAAAAAAAAAAAAA", "hashed:s:AAAAAAAAAAAAAAAAAAAAAA:BBBBBBBBBBBBBBBB"} {
		if _, problems := ParseList(user, slices.Values([]string{text})); len(problems) != 1 || !strings.Contains(problems[0].Err.Error(), "push the file itself again") {
			t.Errorf("%s: %v; want that it is no value any more", text, problems)
		}
	}
	if _, problems := ParseList(of("client_ip"), slices.Values([]string{"192.0.2.1", "nowhere", "", "192.0.2.1/24"})); len(problems) != 2 || problems[0].Line != 2 || problems[1].Line != 4 {
		t.Errorf("problems %v; want those of values 2 and 4", problems)
	}
}

func TestList_Networks(t *testing.T) {
	ip := of("client_ip")
	l := mustList(t, ip, "192.0.2.1\n198.51.100.0/24 # office\n2001:db8:1::/48\n2001:db8:2::1\n::ffff:203.0.113.7\n")
	wants(t, come(ip), l.Has, map[string]bool{
		"192.0.2.1/32": true, "192.0.2.2/32": false, "198.51.100.77/32": true, "198.51.101.1/32": false,
		"2001:db8:1:2::/64": true, "2001:db8:2::/64": true, "2001:db8:3::/64": false, "203.0.113.7/32": true,
	})
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
		wants(t, carry(s), mustList(t, s, text).Has, map[string]bool{"13800138000": true, "+49 30 901820": false})
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
		// no request has them: lines that end as on old Macs, UTF-16, and what is refused as ambiguous
		{of("header:X-Phone"), "k1\rk2\n\x00k\x001\nm\u00fcller\n\u200bk1\nk1\n", []int{1, 2, 3, 4}, 1},
		{of("query:q", NFKC), "m\u00fcller\nk1\vk2\n\uff4b1\nk1\u2028k2\n", []int{2}, 3},
		{phone, "\uff0b8613800138000\n", nil, 1},
		{&Spec{Of: phone, Part: Part{Kind: Country}}, "cn\nChina\nCN\n", []int{1, 2}, 1},
		{&Spec{Of: phone, Part: Part{Kind: DialCode}}, "x\n+86\n+086\n", []int{1, 3}, 1},
		{&Spec{Of: phone, Part: Part{Prefix, 4}}, "+0861380013\n+861380013\n+44 (0)20 79\n", []int{1, 3}, 1},
	} {
		l, problems := ParseList(c.spec, Lines(c.text))
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
	sent := func(value string) Request { return sendsJSON(`{"a":` + value + `}`) }
	wants(t, sender{words, sent}, l.Has, map[string]bool{`"null"`: true, `null`: false, `"true"`: true, `"42"`: true, `42`: true})
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
	wants(t, carry(phone), l.Name, map[string]string{"+86 13800138000": "pro", "13900139000": "free", "13800138001": ""})
	user := of("header:X-Phone")
	l = mustNames(t, user, "a=b=pro\n")
	wants(t, carry(user), l.Name, map[string]string{"a=b": "pro"})
	if (*List)(nil).Name(&Value{}) != "" || (*List)(nil).Names() != nil {
		t.Error("no list has a name")
	}
}

// The smallest network holds. A client of several addresses has the name of any of them.
func TestParseNames_Networks(t *testing.T) {
	ip := of("client_ip")
	l := mustNames(t, ip, "192.0.2.0/24=free\n192.0.2.7=pro\n2001:db8::/32=free\n2001:db8:1::5=pro\n")
	wants(t, come(ip), l.Name, map[string]string{
		"192.0.2.1/32": "free", "192.0.2.7/32": "pro", "198.51.100.1/32": "",
		"2001:db8:9::/64": "free", "2001:db9::/64": "",
	})
	l = mustNames(t, ip, "2001:db8:1::5=pro\n")
	wants(t, come(ip), l.Name, map[string]string{"2001:db8:1::/64": "pro"}) // the client of 2001:db8:1::5
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

func TestTextTable_HasWhatAMapHas(t *testing.T) {
	var table textTable
	want := map[string]uint32{}
	if _, found := table.find(""); found {
		t.Error("an empty table has a text")
	}
	for i := range 5000 {
		text, number := strings.Repeat("x", i%300)+strconv.Itoa(i%3000), uint32(i*i)
		if _, known := want[text]; !known {
			want[text] = number
		}
		if got := table.insert(text, number); got != want[text] {
			t.Fatalf("insert %q returned %d; want %d", text, got, want[text])
		}
	}
	table.insert("", 7)
	want[""] = 7
	table.trim()
	for text, number := range want {
		if got, found := table.find(text); !found || got != number {
			t.Errorf("find %q = %d, %v; want %d", text, got, found, number)
		}
	}
	for _, text := range []string{"x", "0x", strings.Repeat("x", 400), "\x00"} {
		if _, found := table.find(text); found {
			t.Errorf("find %q: found", text)
		}
	}
	if table.size != len(want) {
		t.Errorf("size %d; want %d", table.size, len(want))
	}
}

// million is the number of values of the lists of benchmarks, and of long runs.
const million = 1_000_000

// many is how many values the lists of tests have.
func many() int { return min(rounds.Of(100_000), million) }

// heap returns the bytes in use after a garbage collection.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// linesOf returns a list of so many lines.
func linesOf(n int, line func(i int) string) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(line(i) + "\n")
	}
	return text.String()
}

func aPhone(i int) string { return fmt.Sprintf("+86138%08d", i) }

// A list takes at most 100 bytes a value. The test grants twice that, for other allocators.
func TestList_OfAMillionValuesIsSmall(t *testing.T) {
	phone, user, ip := phoneAt(t, "header:X-Phone"), of("header:X-Phone"), of("client_ip")
	for name, c := range map[string]struct {
		parse func(text string) (*List, []Problem)
		line  func(i int) string
		most  uint64 // bytes a value; with a million addresses, as proxy/docs/lists.md says, 80
	}{
		"phones": {func(text string) (*List, []Problem) { return ParseList(phone, Lines(text)) }, aPhone, 65},
		"API keys with plans": {func(text string) (*List, []Problem) { return ParseNames(user, text) }, func(i int) string {
			return fmt.Sprintf("%040x=plan%d", i*0x9E3779B1, i%5)
		}, 65},
		"addresses": {func(text string) (*List, []Problem) { return ParseList(ip, Lines(text)) }, func(i int) string {
			return fmt.Sprintf("%d.%d.%d.%d", 1+i%199, i>>3&255, i>>11&255, i*7&255)
		}, 130},
	} {
		text := linesOf(many(), c.line)
		before := heap()
		l, problems := c.parse(text)
		each := (heap() - before) / uint64(many())
		if len(problems) > 0 || l.Len() < many()*9/10 {
			t.Fatalf("%s: %d values, %v", name, l.Len(), problems)
		}
		t.Logf("%s: %d bytes a value", name, each)
		if each > c.most {
			t.Errorf("%s: %d bytes a value; want at most %d", name, each, c.most)
		}
		runtime.KeepAlive(text)
		runtime.KeepAlive(l)
	}
}

// BenchmarkParseList is the time for one value, of which a list of a million may take 2 µs.
func BenchmarkParseList(b *testing.B) {
	phone := mustPhone(b, "")
	spec := &Spec{Name: "phone", From: HeaderField("X-Phone"), Normalize: []Step{E164}, Phone: phone}
	text := linesOf(million, aPhone)
	for b.Loop() {
		if l, problems := ParseList(spec, Lines(text)); len(problems) > 0 || l.Len() != million {
			b.Fatalf("%d values, %v", l.Len(), problems)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million, "ns/value")
}
