package test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestLayout_TopLevelHoldsOnlyWhatIsAgreed(t *testing.T) {
	agreed := []string{
		"go.mod", "go.sum", "main.go", "proxy", "limiter", "lock", "test",
		"config.example.yaml", "Dockerfile", "docker-compose.yml",
		"README.md", "LICENSE", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "Makefile",
	}
	made := []string{"weir", "weir.yaml"} // by building and by running; git ignores them
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		name := entry.Name()
		names = append(names, name)
		if !strings.HasPrefix(name, ".") && !slices.Contains(agreed, name) && !slices.Contains(made, name) {
			t.Errorf("%s stands at the top level; the layout has no place for it", name)
		}
	}
	for _, name := range agreed {
		if !slices.Contains(names, name) {
			t.Errorf("%s is missing at the top level", name)
		}
	}
}

// What starts Redis servers must not end up in the binary.
func TestLayout_NoProductCodeUsesTestTools(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || ignored(s) || strings.HasPrefix(s.dir, "test/") {
			continue
		}
		for _, path := range s.imports() {
			if strings.HasPrefix(path, module+"/test/") {
				t.Errorf("%s imports %s, which is for tests", s.path, path)
			}
		}
	}
}
