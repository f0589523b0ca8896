package route

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The most specific pattern is found: exact values before prefixes, longer ones before shorter ones.
func TestDescriptors_FindTheMostSpecific(t *testing.T) {
	d := NewDescriptors([]DescriptorEntry[string]{
		{"edge", map[string]string{"key": "*"}, "any"},
		{"edge", map[string]string{"key": "a*"}, "prefix"},
		{"edge", map[string]string{"key": "ab*"}, "longer"},
		{"edge", map[string]string{"key": "abc"}, "exact"},
		{"edge", map[string]string{"key": "*", "path": "/x"}, "two"},
		{"edge", map[string]string{"key": "*", "path": "*"}, "any two"},
		{"other", map[string]string{"key": "abc"}, "elsewhere"},
	})
	for _, test := range []struct {
		domain string
		of     Descriptor
		want   string
	}{
		{"edge", Descriptor{{"key", "abc"}}, "exact"},
		{"edge", Descriptor{{"key", "abd"}}, "longer"},
		{"edge", Descriptor{{"key", "acd"}}, "prefix"},
		{"edge", Descriptor{{"key", "z"}}, "any"},
		{"edge", Descriptor{{"key", ""}}, "any"},
		{"edge", Descriptor{{"path", "/x"}, {"key", "abc"}}, "two"},
		{"edge", Descriptor{{"key", "abc"}, {"path", "/y"}}, "any two"},
		{"edge", Descriptor{{"path", "/x"}}, ""},
		{"edge", Descriptor{{"key", "a"}, {"path", "/x"}, {"more", "z"}}, ""},
		{"edge", Descriptor{{"key", "a"}, {"key", "b"}}, ""},
		{"edge", nil, ""},
		{"other", Descriptor{{"key", "abc"}}, "elsewhere"},
		{"none", Descriptor{{"key", "abc"}}, ""},
	} {
		if got, _ := d.Find(test.domain, test.of); got != test.want {
			t.Errorf("%s %v: %q, want %q", test.domain, test.of, got, test.want)
		}
	}
}

// Whatever the patterns are, those are found that a comparison with each of them finds.
func TestDescriptors_FindWhatAComparisonFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	for range 300 {
		var entries []DescriptorEntry[string]
		for i := range 1 + random.IntN(20) {
			e := DescriptorEntry[string]{one("edge", "core"), map[string]string{}, fmt.Sprint(i)}
			for range 1 + random.IntN(3) {
				e.Entries[one("a", "b", "ab", "c")] = one("", "x", "xy", "xyz", "y", "*", "x*", "xy*", "y*")
			}
			entries = append(entries, e)
		}
		d := NewDescriptors(entries)
		for range 50 {
			of := Descriptor{}
			for range random.IntN(4) {
				of = append(of, DescriptorField{one("a", "b", "ab", "c"), one("", "x", "xy", "xyz", "xyzz", "y", "z", "*", strings.Repeat("x", 300))})
			}
			domain := one("edge", "core", "none")
			if got, _ := d.Find(domain, of); got != compareEach(entries, domain, of) {
				t.Fatalf("%s %v of %v: %q, want %q", domain, of, entries, got, compareEach(entries, domain, of))
			}
		}
	}
}

// compareEach returns the value of the most specific of entries that matches a descriptor.
func compareEach(entries []DescriptorEntry[string], domain string, of Descriptor) (value string) {
	best := []int{-1}
	for _, e := range entries {
		specificity := []int{0, 0}
		matches := e.Domain == domain && len(of) == len(e.Entries)
		for i, f := range of {
			want, has := e.Entries[f.Key]
			prefix, open := strings.CutSuffix(want, "*")
			if open {
				specificity[1] += len(prefix)
			} else {
				specificity[0]++
			}
			matches = matches && has && (f.Value == want || open && strings.HasPrefix(f.Value, prefix)) &&
				!slices.ContainsFunc(of[:i], func(o DescriptorField) bool { return o.Key == f.Key })
		}
		if matches && cmp.Or(cmp.Compare(specificity[0], best[0]), cmp.Compare(specificity[1], best[len(best)-1])) > 0 {
			value, best = e.Value, specificity
		}
	}
	return value
}

// A search allocates nothing, and takes as long with thousands of patterns of one shape as with one.
func TestDescriptors_FindWithoutAllocations(t *testing.T) {
	var entries []DescriptorEntry[int]
	for i := range 5_000 {
		entries = append(entries, DescriptorEntry[int]{"edge", map[string]string{"generic_key": fmt.Sprint(i), "phone": "*"}, i})
	}
	d := NewDescriptors(entries)
	if n := len(d.byKeys); n != 1 {
		t.Fatalf("%d sets of keys, want 1", n)
	}
	for _, shapes := range d.byKeys {
		if len(shapes) != 1 {
			t.Errorf("%d shapes, want 1", len(shapes))
		}
	}
	of := Descriptor{{"phone", "+4915112345678"}, {"generic_key", "4711"}}
	if n := testing.AllocsPerRun(100, func() {
		if got, _ := d.Find("edge", of); got != 4711 {
			t.Errorf("%d, want 4711", got)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
