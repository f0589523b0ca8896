package test

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// A test that sleeps is slow or wrong; only inside a bubble of testing/synctest
// is sleeping a way to say what time it is. Receiving from time.After is the same
// sleep, but for a select: there it bounds a wait for something else.
func TestLayout_NoTestSleepsOrSkips(t *testing.T) {
	found := tally{}
	for _, s := range sources(t) {
		if !s.isTest() && !strings.HasPrefix(s.dir, "test/") && s.dir != "limiter/limitertest" {
			continue
		}
		bubbled := slices.Contains(s.imports(), "testing/synctest")
		selected := cases(s)
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if method, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, method.Sel.Name) {
					found.add(s, n.Pos(), "skips; fix the test or delete the promise")
				}
				if isFrom(n.Fun, "time", "Sleep") && !bubbled {
					found.add(s, n.Pos(), "sleeps; wait for a condition, or use testing/synctest")
				}
			case *ast.UnaryExpr:
				call, ok := n.X.(*ast.CallExpr)
				if ok && n.Op == token.ARROW && isFrom(call.Fun, "time", "After") && !bubbled && !selected[n] {
					found.add(s, n.Pos(), "sleeps by time.After; wait for a condition in a select, by a ticker, or use testing/synctest")
				}
			}
			return true
		})
	}
	found.check(t, map[string]int{"limiter/redisstore": 5, "proxy/http1": 3})
}

// cases are the receives that a select chooses from.
func cases(s source) map[ast.Node]bool {
	all := map[ast.Node]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if c, ok := n.(*ast.CommClause); ok && c.Comm != nil {
			ast.Inspect(c.Comm, func(n ast.Node) bool {
				if n != nil {
					all[n] = true
				}
				return true
			})
		}
		return true
	})
	return all
}
