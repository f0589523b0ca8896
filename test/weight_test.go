package test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What the product may weigh. A change that makes it lighter writes the new figures here; one that
// makes it heavier says in its description what for.
const (
	mostCode  = 0 // lines of Go that are neither blank nor only a comment, without tests and their tools
	mostLua   = 0 // lines of Lua, comments too
	mostFiles = 80
)

// A line of code that is not there needs no test, no review and no understanding.
func TestWeight_OfTheProduct(t *testing.T) {
	total, byPackage, files := 0, map[string]int{}, map[string]int{}
	for _, s := range sources(t) {
		if s.isTest() || s.dir == "test" || strings.HasPrefix(s.dir, "test/") || strings.HasSuffix(s.dir, "test") {
			continue
		}
		n := codeLines(s.text)
		total, byPackage[s.dir], files[s.dir] = total+n, byPackage[s.dir]+n, files[s.dir]+1
	}
	dirs := make([]string, 0, len(byPackage))
	for dir := range byPackage {
		dirs = append(dirs, dir)
	}
	slices.SortFunc(dirs, func(a, b string) int { return byPackage[b] - byPackage[a] })
	for _, dir := range dirs {
		t.Logf("%6d lines in %3d files: %s", byPackage[dir], files[dir], dir)
		if files[dir] > mostFiles {
			t.Errorf("%s has %d files, at most %d", dir, files[dir], mostFiles)
		}
	}
	t.Logf("%6d lines of code", total)
	if total != mostCode {
		t.Errorf("%d lines of code, %d are written down", total, mostCode)
	}
}

// codeLines counts the lines that have a token which is not a comment.
func codeLines(text []byte) int {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	n, last := 0, 0
	for {
		at, tok, literal := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		first := file.Line(at)
		end := first + strings.Count(literal, "\n")
		n += end - max(first, last+1) + 1
		last = max(last, end)
	}
}

func TestWeight_OfTheLua(t *testing.T) {
	total := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".git" || d.Name() == ".cache" || d.Name() == "testdata") {
			return cmpSkip(err, d)
		}
		if d.IsDir() || filepath.Ext(path) != ".lua" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n := strings.Count(string(text), "\n")
		total += n
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%6d lines of Lua", total)
}

func cmpSkip(err error, d fs.DirEntry) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}
