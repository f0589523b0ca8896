package config

import (
	"strings"
	"testing"
)

func TestNotes(t *testing.T) {
	for _, c := range []struct {
		yaml string
		want []string
	}{
		{"", []string{"made at each start", "an eighth"}},
		{"privacy: {hash_secret: a-secret-long-enough}\n", []string{"an eighth"}},
		{"store: redis\n", []string{"whoever reads Redis"}},
		{"store: redis\nprivacy: {hash_secret: a-secret-long-enough}\n", nil},
	} {
		read, err := Parse("weir.yaml", []byte(c.yaml+small), environment)
		if err != nil {
			t.Fatal(err)
		}
		notes := read.Notes()
		if len(notes) != len(c.want) {
			t.Errorf("%q: notes %q; want %d", c.yaml, notes, len(c.want))
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(notes[i], want) {
				t.Errorf("%q: note %q; want one about %q", c.yaml, notes[i], want)
			}
		}
	}
}
