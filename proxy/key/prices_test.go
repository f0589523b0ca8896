package key

import (
	"strings"
	"testing"
)

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
		price, found := p.Of(Number{E164: c.number, Type: c.of})
		if price.Line != c.line || price.Amount != c.amount || found != c.found {
			t.Errorf("%s, %s costs %+v, %v; want %d, line %d", c.number, c.of, price, found, c.amount, c.line)
		}
	}
}

func TestPrices_LookupDoesNotAllocate(t *testing.T) {
	p, _ := ParsePrices(priceList, 5)
	n := Number{E164: "+4915901234567", Type: Fixed}
	if got := testing.AllocsPerRun(100, func() { p.Of(n) }); got != 0 {
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
	} {
		got, err := ParseAmount(c.text, c.decimals)
		if err != nil || got != c.want || FormatAmount(got, c.decimals) != c.shown {
			t.Errorf("%s = %d, shown as %s, %v; want %d, %s", c.text, got, FormatAmount(got, c.decimals), err, c.want, c.shown)
		}
	}
}
