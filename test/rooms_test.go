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
// that a new algorithm is one file, one row of the table and one line in each switch of
// key_state.go.
func TestAlgorithms_AreNamedInTheirRooms(t *testing.T) {
	rooms{
		dir: "limiter",
		// The second is the table of their Lua, the third that of their oracles.
		tables: []string{"limiter/algorithm.go", "limiter/redisstore/internal/scripts/scripts.go", "limiter/limitertest/oracle.go"},
		own: map[string][]string{
			"TokenBucket": {"permit_log", "token_bucket"}, "SlidingLog": {"permit_log", "sliding_log"}, "FixedWindow": {"sliding_window"},
			"SlidingWindow": {"sliding_window"}, "GCRA": {"gcra"}, "Concurrent": {"algorithm", "algorithms"}, "Distinct": {"distinct", "algorithm", "algorithms"}, "Cooldown": {"cooldown", "algorithm"},
		},
	}.check(t, 35)
}

// A source of keys is a row of the table and, in extract.go or a file of its own, what reads
// it. Elsewhere code asks for its traits.
func TestKeySources_AreNamedInTheirRoom(t *testing.T) {
	rooms{
		dir:    "proxy/key",
		tables: []string{"proxy/key/spec.go", "proxy/key/extract.go"},
		own: map[string][]string{
			"Header": nil, "Query": nil, "Path": nil, "Cookie": {"cookie"}, "Form": {"body"}, "JSON": {"json"}, "JWT": {"token"},
			"ClientIP": nil, "Host": nil, "Method": nil, "Descriptor": nil, "Global": nil,
		},
	}.check(t, 24)
}

// rooms says where the values of an enum may be named.
type rooms struct {
	dir    string              // of the enum's package
	tables []string            // files with a row for each value
	own    map[string][]string // the names of each value's files in any package, as they end
}

// check fails if more than most lines of the product name a value outside of its rooms.
func (r rooms) check(t *testing.T, most int) {
	t.Helper()
	found := map[string]int{}
	count := 0
	for _, s := range sources(t) {
		if s.isTest() || ignored(s) || strings.HasPrefix(s.dir, "test/") || slices.Contains(r.tables, s.path) {
			continue
		}
		lines := map[int]bool{}
		for _, n := range r.named(s) {
			if !r.isOwn(n.Name, s.path) {
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

// isOwn reports whether a file is a room of value: gcra.go, oracle_gcra.go.
func (r rooms) isOwn(value, file string) bool {
	name := "_" + strings.TrimSuffix(path.Base(file), ".go")
	return slices.ContainsFunc(r.own[value], func(end string) bool { return strings.HasSuffix(name, "_"+end) })
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
		case *ast.FuncDecl:
			skip[n.Name] = true
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
