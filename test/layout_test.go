package test

import (
	"bytes"
	"go/ast"
	"os"
	"slices"
	"strings"
	"testing"
)

const longestFile = 350 // lines

func TestLayout_TopLevelHoldsOnlyWhatIsAgreed(t *testing.T) {
	agreed := []string{
		"go.mod", "go.sum", "main.go", "proxy", "limiter", "lock", "test",
		"config.example.yaml", "Dockerfile", "docker-compose.yml",
		"README.md", "LICENSE", "CONTRIBUTING.md", "Makefile",
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

func TestLayout_NoFileIsTooLong(t *testing.T) {
	for _, s := range sources(t) {
		if lines := bytes.Count(s.text, []byte("\n")); !s.isTest() && lines > longestFile {
			t.Errorf("%s has %d lines; a second noun is hiding in it (at most %d)", s.path, lines, longestFile)
		}
	}
}

// A test that sleeps is slow or wrong; only inside a bubble of testing/synctest
// is sleeping a way to say what time it is.
func TestLayout_NoTestSleepsOrSkips(t *testing.T) {
	for _, s := range sources(t) {
		if !s.isTest() {
			continue
		}
		bubbled := slices.Contains(s.imports(), "testing/synctest")
		ast.Inspect(s.file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			at := s.files.Position(call.Pos())
			if from, ok := method.X.(*ast.Ident); ok && from.Name == "time" && method.Sel.Name == "Sleep" && !bubbled {
				t.Errorf("%s:%d sleeps; wait for a condition, or use testing/synctest", s.path, at.Line)
			}
			if slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, method.Sel.Name) {
				t.Errorf("%s:%d skips; fix the test or delete the promise", s.path, at.Line)
			}
			return true
		})
	}
}

// What starts Redis servers must not end up in the binary.
func TestLayout_NoProductCodeUsesTestTools(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || ignored(s) {
			continue
		}
		for _, path := range s.imports() {
			if strings.HasPrefix(path, module+"/test/") {
				t.Errorf("%s imports %s, which is for tests", s.path, path)
			}
		}
	}
}
