package trace

import (
	"strings"
	"testing"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// What is read is what W3C Trace Context calls valid, and nothing else.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		text        string
		ok, sampled bool
	}{
		{parent, true, true},
		{parent[:53] + "00", true, false},
		{parent[:53] + "03", true, true},
		{parent[:53] + "fe", true, false},
		{"cc" + parent[2:] + "-what-the-future-will-be-like", true, true},
		{"cc" + parent[2:], true, true},
		{"", false, false},
		{parent[:54], false, false},
		{parent + "-more", false, false},
		{"cc" + parent[2:] + ".more", false, false},
		{"ff" + parent[2:], false, false},
		{strings.ToUpper(parent), false, false},
		{strings.Replace(parent, "b7ad6b7169203331", "0000000000000000", 1), false, false},
		{strings.Replace(parent, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1), false, false},
		{strings.Replace(parent, "-b7", "_b7", 1), false, false},
		{strings.Replace(parent, "b7ad", "g7ad", 1), false, false},
	} {
		got, ok := Parse(c.text)
		if ok != c.ok || ok && got.Sampled() != c.sampled {
			t.Errorf("Parse(%q) = %+v, %v; want %v, sampled %v", c.text, got, ok, c.ok, c.sampled)
		}
		if again, _ := Parse(got.String()); ok && again != got {
			t.Errorf("%s is read as %+v", got, again)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(parent)
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := Parse(text)
		if !ok {
			return
		}
		if again, ok := Parse(c.String()); !ok || again != c {
			t.Errorf("%q is %+v, which is written %s", text, c, c)
		}
	})
}

// A child is of the same trace and recorded as its parent is; a root is recorded as
// often as it shall be.
func TestContext_ChildAndRoot(t *testing.T) {
	c, _ := Parse(parent)
	if child := c.Child(); child.Trace != c.Trace || child.Span == c.Span || child.Span == (SpanID{}) || !child.Sampled() {
		t.Errorf("%s is a child of %s", child, c)
	}
	for _, share := range []float64{0, 0.25, 1} {
		const all = 20_000
		sampled, seen := 0, map[TraceID]bool{}
		for range all {
			r := Root(share)
			seen[r.Trace] = true
			if r.Sampled() {
				sampled++
			}
		}
		if want := share * all; float64(sampled) < want*0.9 || float64(sampled) > want*1.1 || len(seen) != all {
			t.Errorf("%d of %d are recorded, and %d traces differ; want %v", sampled, all, len(seen), want)
		}
	}
}
