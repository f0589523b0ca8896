package test

import (
	"cmp"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What the product weighs. What makes it lighter writes the lower figure here; what makes it heavier
// says what for.
const (
	codeOfGo = 64_592 // lines of Go that are neither blank nor only a comment, without tests and their tools
	ofSuite  = 2_404  // the same of limiter/limitertest, which tests stores of others too
	linesLua = 3_038  // lines of Lua of the store, comments too
	maxFiles = 45     // files of one package, without tests
	allFiles = 303    // files of the product, without tests
	maxLua   = 150    // lines of one file of Lua
)

// A line that is not there needs no reading, no test and no repair. -v prints what each package
// weighs.
func TestWeight_Go(t *testing.T) {
	lines, files, total, suite := map[string]int{}, map[string]int{}, 0, 0
	for _, s := range sources(t) {
		n := codeLines(s.text)
		switch {
		case s.isTest() || s.dir == "test" || strings.HasPrefix(s.dir, "test/"):
			continue
		case s.dir == "limiter/limitertest":
			suite += n
			continue
		}
		lines[s.dir], files[s.dir], total = lines[s.dir]+n, files[s.dir]+1, total+n
	}
	for _, dir := range slices.SortedFunc(maps.Keys(lines), func(a, b string) int { return cmp.Compare(lines[b], lines[a]) }) {
		t.Logf("%6d lines in %2d files: %s", lines[dir], files[dir], cmp.Or(dir, "main"))
		if files[dir] > maxFiles {
			t.Errorf("%s has %d files, at most %d", dir, files[dir], maxFiles)
		}
	}
	count := 0
	for _, n := range files {
		count += n
	}
	t.Logf("%6d lines of Go in %d files", total, count)
	if count > allFiles {
		t.Errorf("%d files, at most %d: a file is a subject, of 150 to 500 lines", count, allFiles)
	}
	if total != codeOfGo || suite != ofSuite {
		t.Errorf("%d lines of Go and %d of the suite, %d and %d are written down here", total, suite, codeOfGo, ofSuite)
	}
}

// codeLines returns how many lines of text have something other than a comment.
func codeLines(text []byte) (n int) {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for last := 0; ; {
		at, tok, literal := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		end := file.Line(at) + strings.Count(literal, "\n")
		n += end - max(file.Line(at)-1, last)
		last = max(last, end)
	}
}

func TestWeight_CodeLines(t *testing.T) {
	const text = "package p\n\n// a comment\nvar a = `\nb\n` // behind\n\n/* more\nlines */\nfunc f() {\n}\n"
	if got := codeLines([]byte(text)); got != 6 {
		t.Errorf("%d lines; want 6", got)
	}
}

// Lua is read in pieces of a screen or two.
func TestWeight_Lua(t *testing.T) {
	total := 0
	err := filepath.WalkDir("../limiter/redisstore/lua", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".lua" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n := strings.Count(string(text), "\n")
		if total += n; n > maxLua {
			t.Errorf("%s has %d lines, at most %d", path, n, maxLua)
		}
		return nil
	})
	check(t, err)
	t.Logf("%6d lines of Lua", total)
	if total != linesLua {
		t.Errorf("%d lines of Lua, %d are written down here", total, linesLua)
	}
}
