package test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Who wants to know what a limit does asks the limit, not its fields: only the configuration, which
// fills them, package limit, which compiles them, and what explains a limit to people know them.
func TestShape_FewAskForOptionalFields(t *testing.T) {
	optional := strings.Fields(`Distinct Steps Reset Return Conversion StepUp Scope Burst Overrides Plans Plan RedissonName RedissonFormat Penalty Cost
		Prices Count Mode OnStoreFailure Expose Wait MaxWaiting RateFrom`)
	found := tally{}
	total := 0
	packages, limit := checked(t)
	fields := fieldsOf(limit, optional)
	for _, p := range packages {
		for expr, selection := range p.info.Selections {
			at := p.files.Position(expr.Pos())
			if !fields[selection.Obj()] || p.path == "proxy/limit" || strings.Contains(at.Filename, "explain") {
				continue
			}
			total++
			found[p.path] = append(found[p.path], at.String()+": "+expr.Sel.Name)
		}
	}
	for dir, all := range found {
		t.Logf("%4d %s", len(all), dir)
	}
	if t.Logf("%4d in all", total); total > 30 {
		t.Errorf("%d places ask for an optional field of a limit, at most 30: ask the limit (proxy/limit)", total)
	}
}

// fieldsOf returns the fields of config.Limit that have one of these names.
func fieldsOf(limit *types.Struct, names []string) map[types.Object]bool {
	fields := map[types.Object]bool{}
	for f := range limit.Fields() {
		if slices.Contains(names, f.Name()) {
			fields[f] = true
		}
	}
	return fields
}

// A checkedPackage is a package of the product with the types of its expressions.
type checkedPackage struct {
	path  string
	files *token.FileSet
	info  *types.Info
}

// checked type-checks the packages that import config, with what the compiler has exported of others.
func checked(t *testing.T) (out []checkedPackage, limit *types.Struct) {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Imports", "..")
	cmd.Stderr = os.Stderr
	listed, err := cmd.Output()
	check(t, err)
	exports, users := map[string]string{}, map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(string(listed))); ; {
		var p struct {
			ImportPath, Export string
			Imports            []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		users[p.ImportPath] = slices.Contains(p.Imports, module+"/proxy/config")
	}
	of := map[string][]*ast.File{}
	var files *token.FileSet
	for _, s := range sources(t) {
		if !s.isTest() && users[module+"/"+s.dir] {
			of[s.dir], files = append(of[s.dir], s.file), s.files
		}
	}
	compiled := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for dir, parsed := range of {
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
		c := types.Config{Importer: compiled, Error: func(error) {}}
		c.Check(module+"/"+dir, files, parsed, info)
		out = append(out, checkedPackage{path: dir, files: files, info: info})
	}
	config, err := compiled.Import(module + "/proxy/config")
	check(t, err)
	return out, config.Scope().Lookup("Limit").Type().Underlying().(*types.Struct)
}
