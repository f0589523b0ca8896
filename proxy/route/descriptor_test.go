package route

import "testing"

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
