package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzParse: no text makes the loader panic. It gives either a config or
// problems that say where they are; and a config made effective is read back
// as the same.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", example} {
		files, _ := filepath.Glob(pattern)
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("weir.yaml", data, environment)
		if err != nil {
			var problems Problems
			if c != nil || !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("got %v, %v", c, err)
			}
			for _, p := range problems {
				if p.File != "weir.yaml" || p.What == "" {
					t.Errorf("nowhere or nothing: %+v", p)
				}
			}
			return
		}
		first := effective(t, c)
		again, err := Parse("weir.yaml", first, environment)
		if err != nil {
			t.Fatalf("%v\nin\n%s", err, first)
		}
		if second := effective(t, again); !bytes.Equal(first, second) {
			t.Errorf("got\n%s\nwant\n%s", second, first)
		}
	})
}

func effective(t *testing.T, c *Config) []byte {
	t.Helper()
	return c.Effective()
}
