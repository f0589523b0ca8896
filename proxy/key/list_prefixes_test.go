package key

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/rounds"
)

func TestPrefixes_LongestFirst(t *testing.T) {
	var table textTable
	for _, prefix := range []string{"+4", "+49", "+4915", "+491", "x", "+4915123456789"} {
		table.insert(prefix, uint32(len(prefix)))
	}
	table.trim()
	for text, want := range map[string]string{
		"": "", "+": "", "+1": "", "4915": "", "+4": "+4", "+43": "+4", "+49": "+49", "+4930": "+49", "+491": "+491",
		"+4915": "+4915", "+49151234567": "+4915", "+4915123456789": "+4915123456789", "+49151234567890": "+4915123456789", "xyz": "x",
		strings.Repeat("y", 200): "", "x" + strings.Repeat("y", 200): "x",
	} {
		if length, found := table.longest(text); int(length) != len(want) || found != (want != "") {
			t.Errorf("find %q = the prefix of %d bytes, %v; want %q", text, length, found, want)
		}
	}
	if _, found := new(textTable).longest("x"); found {
		t.Error("an empty table has a prefix")
	}
}

// The table finds what a map of prefixes finds, which is asked for each beginning of a text.
func TestPrefixes_AgreeWithAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func(most int) string {
		b := make([]byte, r.IntN(most))
		for i := range b {
			b[i] = "012"[r.IntN(3)]
		}
		return string(b)
	}
	for range 50 {
		var table textTable
		known := map[string]bool{}
		for range r.IntN(200) {
			if one := text(MaxPrefix); one != "" {
				one = one[:1+r.IntN(len(one))]
				known[one] = true
				table.insert(one, uint32(len(one)))
			}
		}
		table.trim()
		for range 500 {
			whole, want := text(80), ""
			for i := range whole {
				if known[whole[:i+1]] {
					want = whole[:i+1]
				}
			}
			if length, _ := table.longest(whole); int(length) != len(want) {
				t.Fatalf("find %q = the prefix of %d bytes; want %q", whole, length, want)
			}
		}
	}
}

func TestParsePrefixes_ReadsRangesOfNumbers(t *testing.T) {
	phone := phoneAt(t, "header:X-Phone")
	l, problems := ParsePrefixes(phone, Lines("+49 15 # mobile\n8819\n\n+1 (242)\n+4915\n"))
	if len(problems) > 0 || l.Len() != 3 {
		t.Fatalf("%d prefixes, %v; want 3", l.Len(), problems)
	}
	want := map[string]bool{"+4915123456789": true, "+881912345678": true, "+12423598765": true, "+493012345678": false, "+13124567890": false}
	wants(t, carry(phone), l.Has, want)
	wants(t, carry(phone), func(v *Value) bool { return l.HasExactly(v, netip.Addr{}) }, want)
	_, problems = ParsePrefixes(phone, Lines("+\n0151\n+0\n00491\nDE\n+49 ext. 5\n+44 ( 0 )20 7946\n+4915\n"))
	if len(problems) != 7 || problems[6].Line != 7 {
		t.Errorf("problems %v; want seven, in the first lines", problems)
	}
	for _, p := range problems {
		if !errors.Is(p.Err, ErrSpec) {
			t.Error(p.Err)
		}
	}
}

func TestParsePrefixes_OfOtherKeys(t *testing.T) {
	lower := &Spec{Name: "app", From: HeaderField("X-Phone"), Normalize: []Step{Lower}}
	l, problems := ParsePrefixes(lower, slices.Values([]string{"Bot-", strings.Repeat("x", MaxPrefix), strings.Repeat("x", MaxPrefix+1)}))
	if len(problems) != 1 || problems[0].Line != 3 || l.Len() != 2 {
		t.Errorf("%d prefixes, %v; want a problem with the third", l.Len(), problems)
	}
	wants(t, carry(lower), l.Has, map[string]bool{"BOT-7": true})
}

func someRanges(n int) []string {
	r, all := rand.New(rand.NewPCG(1, 2)), make([]string, n)
	for i := range all {
		code := []string{"+1", "+44", "+49", "+86", "+881", "+882", "+7", "+91", "+234", "+371", "+53", "+252", "+216", "+960"}[r.IntN(14)]
		all[i] = code + fmt.Sprintf("%09d", r.IntN(1e9))[:6+r.IntN(4)]
	}
	return all
}

// A prefix takes at most 100 bytes. The test grants twice that, for other allocators.
func TestParsePrefixes_AreSmall(t *testing.T) {
	const n = million / 8
	text := strings.Join(someRanges(n), "\n")
	before := heap()
	l, problems := ParsePrefixes(phoneAt(t, "header:X-Phone"), Lines(text))
	each := (heap() - before) / n
	t.Logf("%d bytes a prefix", each)
	if len(problems) > 0 || l.Len() < n*9/10 || each > 30 {
		t.Errorf("%d prefixes of %d bytes each, %v; want at most 30", l.Len(), each, problems)
	}
	runtime.KeepAlive(text)
	runtime.KeepAlive(l)
}

// BenchmarkPrefixes looks numbers up in a million ranges, of which every second is in one. A lookup may
// take 200 ns, and the ranges 100 MB.
func BenchmarkPrefixes(b *testing.B) {
	ranges := someRanges(million)
	before := heap()
	var table textTable
	for _, one := range ranges {
		table.insert(one, 0)
	}
	table.trim()
	size := float64(heap()-before) / 1e6
	numbers := make([]string, 1<<14)
	for i := range numbers {
		numbers[i] = (ranges[i*7][:4+i%2*(len(ranges[i*7])-4)] + "987654321")[:13]
	}
	i, hits := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		if _, found := table.longest(numbers[i%len(numbers)]); found {
			hits++
		}
		i++
	}
	b.ReportMetric(size, "MB")
	b.ReportMetric(float64(hits)/float64(b.N), "hits/op")
}

const priceList = `prefix,type,price
# satellites
+881,*,2.10
+49,*,0.08
+4915,mobile,0.075
"+491590",premium,1
+1,fixed_or_mobile,0.00645
+44,mobile,0.04
*,fixed,0
`

func TestPrices_LongestPrefixThenType(t *testing.T) {
	p, problems := ParsePrices(priceList, 5)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, c := range []struct {
		number string
		of     LineType
		line   int
		amount int64
		found  bool
	}{
		{"+4915123456789", Mobile, 5, 7500, true},
		{"+4915123456789", Fixed, 4, 8000, true}, // no row of the longest prefix is for it
		{"+4915901234567", Mobile, 5, 7500, true},
		{"+4915901234567", Premium, 6, 100000, true},
		{"+493012345678", Fixed, 4, 8000, true},
		{"+881612345678", Mobile, 3, 210000, true},
		{"+12015550123", FixedOrMobile, 7, 645, true},
		{"+441212345678", Fixed, 9, 0, true},
		{"+447400123456", Mobile, 8, 4000, true},
		{"+447400123456", VoIP, 3, 210000, false}, // the dearest
		{"+8613800138000", Mobile, 3, 210000, false},
		{"", "", 3, 210000, false},
	} {
		price, found := p.Of(c.number, c.of)
		if price.Line != c.line || price.Amount != c.amount || found != c.found {
			t.Errorf("%s, %s costs %+v, %v; want %d, line %d", c.number, c.of, price, found, c.amount, c.line)
		}
	}
}

func TestPrices_LookupDoesNotAllocate(t *testing.T) {
	p, _ := ParsePrices(priceList, 5)
	n := Number{E164: "+4915901234567", Type: Fixed}
	if got := rounds.Allocations(100, func() { p.Of(n.E164, n.Type) }); got != 0 {
		t.Errorf("%v allocations; want none", got)
	}
}

func TestParsePrices_Problems(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "the list is empty",
		"# none\n\n":                       "the list is empty",
		"+49,*":                            "2 fields",
		"+49,*,0,08":                       "4 fields",
		"0151,*,1":                         "calling code",
		"+44 (0)7,mobile,1":                "calling code",
		"+49,cell,1":                       `"cell" is not a line type`,
		"+49,*,1 EUR":                      "not an amount",
		"+49,*,-1":                         "not an amount",
		"+49,*,":                           "not an amount",
		"+49,*,1.":                         "not an amount",
		"+49,*,.5":                         "not an amount",
		"+49,*,0.000001":                   "write decimals: 6",
		"+49,*,21474.83648":                "more than 21474.83647",
		"+49,*,99999999999999999999":       "more than 21474.83647",
		"+49,*,1\n+49,mobile,1\n49 , * ,2": "first in line 1",
	} {
		_, problems := ParsePrices(text, 5)
		if len(problems) != 1 || !strings.Contains(problems[0].Err.Error(), want) || problems[0].Line != max(1, strings.Count(text, "\n")+1) && text[0] != '#' {
			t.Errorf("%q: %v; want one about %q", text, problems, want)
		}
	}
}

func TestAmounts(t *testing.T) {
	for _, c := range []struct {
		text     string
		decimals int
		want     int64
		shown    string
	}{
		{"0", 5, 0, "0"}, {"0.075", 5, 7500, "0.075"}, {"1.10", 5, 110000, "1.1"}, {"400", 2, 40000, "400"}, {"7", 0, 7, "7"},
		{"21474.83647", 5, 1<<31 - 1, "21474.83647"}, {"0.000001", 6, 1, "0.000001"}, {"2.5000000000", 1, 25, "2.5"},
		{"214748.3647", 4, 1<<31 - 1, "214748.3647"}, {"2147.483647", 6, 1<<31 - 1, "2147.483647"},
	} {
		got, err := ParseAmount(c.text, c.decimals)
		if err != nil || got != c.want || FormatAmount(got, c.decimals) != c.shown {
			t.Errorf("%s = %d, shown as %s, %v; want %d, %s", c.text, got, FormatAmount(got, c.decimals), err, c.want, c.shown)
		}
	}
}
