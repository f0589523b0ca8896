package test

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// An algorithm is one file in package limiter. Elsewhere code asks for its traits, so
// that a new algorithm is one file, one row of the table and one line for each function
// that key_state.go dispatches.
func TestAlgorithms_AreNamedInTheirRooms(t *testing.T) {
	const most = 57
	own := map[string][]string{
		"TokenBucket": {"permit_log"}, "SlidingLog": {"permit_log"}, "FixedWindow": {"fixed_window"}, "SlidingWindow": {"sliding_window"},
		"GCRA": {"gcra"}, "Concurrent": {"concurrent"}, "Distinct": {"distinct"}, "Cooldown": {"cooldown"},
	}
	checkRooms(t, rooms{dir: "limiter", table: "algorithm", own: own}, most)
}

// rooms says where the values of an enum may be named.
type rooms struct {
	dir   string              // of the enum's package
	table string              // the file of the enum and the table of traits in it, without .go
	own   map[string][]string // the files of each value, in any package
}

// checkRooms fails if more than most lines of the product name a value outside of its
// rooms.
func checkRooms(t *testing.T, r rooms, most int) {
	t.Helper()
	found := map[string]int{}
	count := 0
	for _, s := range sources(t) {
		if s.isTest() || ignored(s) || strings.HasPrefix(s.dir, "test/") || s.path == path.Join(r.dir, r.table+".go") {
			continue
		}
		name := strings.TrimSuffix(path.Base(s.path), ".go")
		lines := map[int]bool{}
		for _, n := range r.named(s) {
			if !slices.Contains(r.own[n.Name], name) {
				lines[s.files.Position(n.Pos()).Line] = true
			}
		}
		if len(lines) > 0 {
			found[s.path] = len(lines)
			count += len(lines)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(found)) {
		t.Logf("%3d %s", found[file], file)
	}
	t.Logf("%d lines", count)
	if count > most {
		t.Errorf("%d lines name a value outside of its file, want at most %d: ask for a trait", count, most)
	}
}

// named lists the identifiers in s that name a value.
func (r rooms) named(s source) (out []*ast.Ident) {
	skip := map[ast.Node]bool{} // names of fields and methods
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			skip[n.Sel] = true
			if _, ok := r.own[n.Sel.Name]; ok && s.dir != r.dir && isFrom(n, path.Base(r.dir), n.Sel.Name) {
				out = append(out, n.Sel)
			}
		case *ast.Field:
			for _, name := range n.Names {
				skip[name] = true
			}
		case *ast.Ident:
			if _, ok := r.own[n.Name]; ok && s.dir == r.dir && !skip[n] {
				out = append(out, n)
			}
		}
		return true
	})
	return out
}
