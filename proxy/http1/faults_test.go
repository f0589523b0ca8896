package http1

import (
	"errors"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A fault is one that a server or a proxy had and that let somebody smuggle, poison,
// spy or stop. It is held down by bytes that are tried here, wherever they are split,
// or by tests that it names.
type fault struct {
	fault, rule string
	requests    []refusal // what is no request
	reads       []reading // what is one, and which
	answers     []refusal // what is no answer to GET
	chunks      []refusal // what is no chunked body
	tests       []string  // of this package, or dir.Test of another
}

// A refusal is a message, with bars for CRLF, and why it is refused.
type refusal struct {
	raw  string
	want error
}

// A reading is a message, with bars for CRLF, and the beginning of what seen says of it.
type reading struct{ raw, want string }

func faults() []fault {
	return slices.Concat(requestLineFaults(), hostFaults(), fieldFaults(), lengthFaults(), chunkFaults(), bodyFaults(), interimFaults(), connectionFaults(), outputFaults())
}

// Faults that others had to mend are none of ours.
func TestFaults_KnownVulnerabilities(t *testing.T) {
	all := faults()
	if len(all) != 70 {
		t.Errorf("%d faults are listed; want 70", len(all))
	}
	for _, f := range all {
		for _, r := range f.requests {
			if _, _, err := requestSplit(t, lined(r.raw)); !errors.Is(err, r.want) {
				t.Errorf("%s: %q: got %v; want %v", f.fault, r.raw, err, r.want)
			}
		}
		for _, r := range f.reads {
			if got, _, err := requestSplit(t, lined(r.raw)); err != nil || !strings.HasPrefix(seen(got), r.want) {
				t.Errorf("%s: %q: got %s, %v; want %s", f.fault, r.raw, seen(got), err, r.want)
			}
		}
		for _, r := range f.answers {
			if _, _, err := responseSplit(t, lined(r.raw), "GET"); !errors.Is(err, r.want) {
				t.Errorf("%s: %q: got %v; want %v", f.fault, r.raw, err, r.want)
			}
		}
		for _, r := range f.chunks {
			if _, _, err := chunksSplit(t, lined(r.raw)); !errors.Is(err, r.want) {
				t.Errorf("%s: %q: got %v; want %v", f.fault, r.raw, err, r.want)
			}
		}
	}
}

// The tests that hold a fault down are there.
func TestFaults_HaveTests(t *testing.T) {
	known := map[string][]string{}
	for _, f := range faults() {
		if f.fault == "" || f.rule == "" || len(f.requests)+len(f.reads)+len(f.answers)+len(f.chunks)+len(f.tests) == 0 {
			t.Errorf("%q: nothing holds it down", f.fault)
		}
		for _, name := range f.tests {
			dir, test, other := strings.Cut(name, ".")
			if !other {
				dir, test = "http1", name
			}
			if known[dir] == nil {
				known[dir] = testsIn(t, filepath.Join("..", dir))
			}
			if !slices.Contains(known[dir], test) {
				t.Errorf("%s: there is no test %s", f.fault, name)
			}
		}
	}
}

// testsIn are the names of the tests and fuzz targets in a directory.
func testsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), filepath.Join(dir, entry.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
