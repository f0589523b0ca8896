package test

import (
	"fmt"
	"go/token"
	"maps"
	"slices"
	"testing"
)

// A tally is what breaks a rule, by package.
type tally map[string][]string

// add notes what is wrong at a place in s.
func (f tally) add(s source, at token.Pos, what string) {
	f[s.dir] = append(f[s.dir], fmt.Sprintf("%s:%d: %s", s.path, s.files.Position(at).Line, what))
}

// check fails for each package in which more breaks the rule than is known, and for
// each in which less does: then the number is to be lowered, so that it only falls.
// A rule that holds everywhere has no numbers.
func (f tally) check(t *testing.T, known map[string]int) {
	t.Helper()
	for _, dir := range slices.Sorted(maps.Keys(f)) {
		if len(f[dir]) <= known[dir] {
			continue
		}
		for _, what := range f[dir] {
			t.Error(what)
		}
		if known[dir] > 0 {
			t.Errorf("%s has %d of these, and no more than %d are known", dir, len(f[dir]), known[dir])
		}
	}
	for dir, n := range known {
		if len(f[dir]) < n {
			t.Errorf("%s has only %d of these any more; write %d for it, or take it off the list", dir, len(f[dir]), len(f[dir]))
		}
	}
}
