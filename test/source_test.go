package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/weir-proxy/weir"

// A source is one Go file of this module, parsed.
type source struct {
	path  string // from the top, slashes: "proxy/key/spec.go"
	dir   string // its package's path from the top, "" for main
	text  []byte
	file  *ast.File
	files *token.FileSet
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// imports lists the import paths of s.
func (s source) imports() []string {
	var out []string
	for _, spec := range s.file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has refused such a file
		}
		out = append(out, path)
	}
	return out
}

// sources are all Go files of the module, those of nested modules left out.
func sources(t *testing.T) []source {
	t.Helper()
	out, err := parsed()
	check(t, err)
	if !slices.ContainsFunc(out, func(s source) bool { return s.path == "limiter/doc.go" }) {
		t.Fatal("limiter/doc.go not found: the walk looks at the wrong folder")
	}
	return out
}

// parsed takes a quarter of a second, and nobody changes what it returns.
var parsed = sync.OnceValues(parse)

// parse reads and parses all that belongs to the module.
func parse() (out []source, err error) {
	files := token.NewFileSet()
	err = filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return enter(path, entry)
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		dir := strings.TrimSuffix(strings.TrimSuffix(name, filepath.Base(name)), "/")
		out = append(out, source{path: name, dir: dir, text: text, file: file, files: files})
		return nil
	})
	return out, err
}

// enter says which folders belong to the module.
func enter(path string, entry fs.DirEntry) error {
	name := entry.Name()
	if name == "testdata" || (path != ".." && strings.HasPrefix(name, ".")) {
		return filepath.SkipDir
	}
	if path == ".." {
		return nil
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}
