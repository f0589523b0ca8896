package key

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/rounds"
)

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
	}{
		"phones": {func(text string) (*List, []Problem) { return ParseList(phone, text) }, aPhone},
		"API keys with plans": {func(text string) (*List, []Problem) { return ParseNames(user, text) }, func(i int) string {
			return fmt.Sprintf("%040x=plan%d", i*0x9E3779B1, i%5)
		}},
		"addresses": {func(text string) (*List, []Problem) { return ParseList(ip, text) }, func(i int) string {
			return fmt.Sprintf("%d.%d.%d.%d", 1+i%199, i>>3&255, i>>11&255, i*7&255)
		}},
	} {
		text := linesOf(many(), c.line)
		before := heap()
		l, problems := c.parse(text)
		each := (heap() - before) / uint64(many())
		if len(problems) > 0 || l.Len() < many()*9/10 {
			t.Fatalf("%s: %d values, %v", name, l.Len(), problems)
		}
		t.Logf("%s: %d bytes a value", name, each)
		if each > 2*100 {
			t.Errorf("%s: %d bytes a value; want at most 100", name, each)
		}
		runtime.KeepAlive(text)
		runtime.KeepAlive(l)
	}
}

// BenchmarkParseList is the time for one value, of which a list of a million may take 2 µs.
func BenchmarkParseList(b *testing.B) {
	phone, err := NewPhone("", nil, RefuseExtensions)
	if err != nil {
		b.Fatal(err)
	}
	spec := &Spec{Name: "phone", From: HeaderField("X-Phone"), Normalize: []Step{E164}, Phone: phone}
	text := linesOf(million, aPhone)
	for b.Loop() {
		if l, problems := ParseList(spec, text); len(problems) > 0 || l.Len() != million {
			b.Fatalf("%d values, %v", l.Len(), problems)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million, "ns/value")
}
