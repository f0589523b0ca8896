package test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

const (
	longestFile     = 500 // lines
	longestFunction = 70  // lines
	mostParameters  = 4   // beside a context
)

// Files of tests count as those of the product: a long one is two stories.
func TestLayout_NoFileIsTooLong(t *testing.T) {
	found := tally{}
	for _, s := range sources(t) {
		if lines := bytes.Count(s.text, []byte("\n")); lines > longestFile {
			found.add(s, s.file.Pos(), fmt.Sprintf("%d lines; a second noun is hiding in it (at most %d)", lines, longestFile))
		}
	}
	found.check(t, map[string]int{"proxy": 1, "proxy/http1": 1})
}

func TestLayout_NoFunctionIsTooLong(t *testing.T) {
	found := tally{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := linesOf(s, f)
			if s.isTest() {
				lines -= rows(s, f)
			}
			if lines > longestFunction {
				found.add(s, f.Pos(), fmt.Sprintf("%s has %d lines; name its chapters (at most %d)", f.Name.Name, lines, longestFunction))
			}
		}
	}
	found.check(t, nil)
}

// linesOf is how many lines a node goes over.
func linesOf(s source, n ast.Node) int {
	return s.files.Position(n.End()).Line - s.files.Position(n.Pos()).Line + 1
}

// rows is how many lines of a test are its tables: rows are read one at a time, and
// each is as good a test as the next.
func rows(s source, f *ast.FuncDecl) (lines int) {
	ast.Inspect(f, func(n ast.Node) bool {
		table, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		lines += linesOf(s, table) - 1
		return false
	})
	return lines
}

func TestLayout_FunctionsTakeFewParameters(t *testing.T) {
	found := tally{}
	signatures(t, func(s source, f *ast.FuncType) {
		n := 0
		for i, p := range f.Params.List {
			if i == 0 && isFrom(p.Type, "context", "Context") {
				continue
			}
			n += max(1, len(p.Names))
		}
		if n > mostParameters {
			found.add(s, f.Pos(), fmt.Sprintf("%d parameters; what belongs together is a struct (at most %d)", n, mostParameters))
		}
	})
	found.check(t, map[string]int{
		"limiter/redisstore": 2, "proxy/http1": 1, "proxy/respond": 1,
	})
}

// A call with true says nothing to its reader: two functions do, or a type whose
// values have names.
func TestLayout_NoParameterIsBool(t *testing.T) {
	found := tally{}
	signatures(t, func(s source, f *ast.FuncType) {
		for _, p := range f.Params.List {
			if name, ok := p.Type.(*ast.Ident); ok && name.Name == "bool" {
				found.add(s, p.Pos(), "a bool parameter; write two functions, or a type with names for both")
			}
		}
	})
	found.check(t, map[string]int{
		"limiter/redisstore": 3, "proxy/http1": 1, "proxy/upstream": 3,
	})
}

// signatures shows each function, method, literal and type of a function.
func signatures(t *testing.T, show func(s source, f *ast.FuncType)) {
	t.Helper()
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncType); ok {
				show(s, f)
			}
			return true
		})
	}
}

// isFrom reports whether n is pkg.name.
func isFrom(n ast.Node, pkg, name string) bool {
	selector, ok := n.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := selector.X.(*ast.Ident)
	return ok && from.Name == pkg && selector.Sel.Name == name
}

// What a package keeps in a variable two proxies in one process share. Errors,
// embedded files and compiled expressions never change, nor do the tables of what the
// values of an enum are; flags belong to the process, and what the linker or a test of the package outside of it needs is a variable.
func TestLayout_NoPackageVariables(t *testing.T) {
	found := tally{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR || strings.HasSuffix(s.path, "/export_test.go") {
				continue
			}
			for _, spec := range group.Specs {
				v := spec.(*ast.ValueSpec)
				if s.isTest() && len(v.Values) == 1 && computedOnce(v.Values[0]) {
					continue
				}
				if !constant(v) && !embedded(group.Doc) && !embedded(v.Doc) && s.path+" "+v.Names[0].Name != "proxy/cli/cli.go version" {
					found.add(s, v.Pos(), "a package variable; make it a function, or give it to who needs it")
				}
			}
		}
	}
	found.check(t, map[string]int{"limiter": 1, "limiter/redisstore": 1})
}

// constant reports whether variables are as good as constants.
func constant(v *ast.ValueSpec) bool {
	if v.Names[0].Name == "_" {
		return true // says that a type has the methods of an interface
	}
	if strings.HasPrefix(strings.ToLower(v.Names[0].Name), "err") {
		return true
	}
	for _, value := range v.Values {
		if isTable(value) {
			continue
		}
		call, ok := value.(*ast.CallExpr)
		if !ok || !isFrom(call.Fun, "flag", "Bool") && !isFrom(call.Fun, "flag", "String") && !isFrom(call.Fun, "regexp", "MustCompile") {
			return false
		}
	}
	return len(v.Values) > 0
}

// isTable reports whether value is an array with a row for each value of an enum, whose
// length is the enum's count: "[NumAlgorithms + 1]traits{...}".
func isTable(value ast.Expr) bool {
	rows, ok := value.(*ast.CompositeLit)
	if !ok {
		return false
	}
	array, ok := rows.Type.(*ast.ArrayType)
	if !ok || array.Len == nil {
		return false
	}
	counts := false
	ast.Inspect(array.Len, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		counts = counts || ok && strings.HasPrefix(strings.ToLower(id.Name), "num")
		return true
	})
	return counts
}

// computedOnce reports whether a test keeps what would be the same each time.
func computedOnce(value ast.Expr) bool {
	call, ok := value.(*ast.CallExpr)
	return ok && isFrom(call.Fun, "sync", "OnceValues")
}

func embedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// A receiver is the initial of its type or of one of its words, in small letters: the same in
// all methods. x is the exchange.
func TestLayout_ReceiversAreInitials(t *testing.T) {
	found := tally{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || len(f.Recv.List[0].Names) == 0 {
				continue
			}
			of, name := receiverType(f.Recv.List[0].Type), f.Recv.List[0].Names[0].Name
			isInitial := slices.ContainsFunc(wordsOf(of), func(word string) bool { return strings.HasPrefix(word, name) && len(name) == 1 })
			if !isInitial && name != "_" && !(of == "exchange" && name == "x") {
				found.add(s, f.Pos(), fmt.Sprintf("the receiver %s of %s", name, of))
			}
		}
	}
	found.check(t, map[string]int{
		"limiter/redisstore": 13, "lock": 7, "proxy": 3, "proxy/admin/dashboard": 1,
		"proxy/config/internal/form": 1, "proxy/frontend": 1, "proxy/http1": 13, "proxy/key": 4, "proxy/metrics": 3, "proxy/route": 9, "proxy/upstream": 2,
		"test": 4, "test/interop/readers": 38,
	})
}

// receiverType returns the name of the type of a receiver.
func receiverType(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverType(e.X)
	case *ast.IndexExpr:
		return receiverType(e.X)
	case *ast.IndexListExpr:
		return receiverType(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
