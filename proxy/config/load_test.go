package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// environment is what the files under testdata see.
func environment(name string) (string, bool) {
	value, ok := map[string]string{
		"SET": "set", "NUMBER": "7", "EMPTY": "", "TRICK": "a\nroutes: []", "DOLLAR": "${SET}",
	}[name]
	return value, ok
}

// load is Load with the environment of the tests.
func load(path string) (*Config, error) {
	r := newLoader(environment)
	main := r.open(path, "")
	if main == nil {
		return nil, r.failed()
	}
	r.include(path, main)
	return r.compile(main)
}

func mustLoad(t *testing.T, path string) *Config {
	t.Helper()
	c, err := load(path)
	if err != nil {
		t.Fatalf("%s has problems:\n%v", path, err)
	}
	return c
}

// golden compares got with the file at path, or writes it with -update.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// TestLoad_SaysAllThatIsWrong compares what is said of each faulty file, word
// for word.
func TestLoad_SaysAllThatIsWrong(t *testing.T) {
	files := mustGlob(t, "testdata/bad-*.yaml")
	if len(files) < 45 {
		t.Errorf("only %d faulty files", len(files))
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c, err := load(path)
			var problems Problems
			if c != nil || !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("got %v, %v, want problems only", c, err)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".want", []byte(err.Error()+"\n"))
		})
	}
}

// TestLoad_Good compares what is made of each good file, and what is warned of.
func TestLoad_Good(t *testing.T) {
	for _, path := range mustGlob(t, "testdata/good-*.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c := mustLoad(t, path)
			got, err := c.Effective()
			if err != nil {
				t.Fatal(err)
			}
			base := strings.TrimSuffix(path, ".yaml")
			golden(t, base+".effective", got)
			var warnings strings.Builder
			for _, w := range c.Warnings {
				warnings.WriteString(w.String() + "\n")
			}
			golden(t, base+".warnings", []byte(warnings.String()))
		})
	}
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return files
}
