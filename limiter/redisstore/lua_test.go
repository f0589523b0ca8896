package redisstore_test

import (
	"crypto/sha1"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/scripts"
	"github.com/weir-proxy/weir/test/filetest"
)

var update = flag.Bool("update", false, "write testdata/scripts.txt anew")

// Each file is Lua by itself, of 150 lines at most.
func TestLua_FilesAreLua(t *testing.T) {
	files := redisstore.LuaFolder()
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		source := strings.TrimPrefix(string(text), "#!lua flags=allow-cross-slot-keys") // for Redis
		if _, err := parse.Parse(strings.NewReader(source), path); err != nil {
			t.Error(err)
		}
		if lines := strings.Count(string(text), "\n"); lines > 150 {
			t.Errorf("%s has %d lines, more than 150", path, lines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What Redis has for scripts, as far as they use it. It protects all other names: a script
// that reads or writes one fails there.
func globals() []string {
	return []string{
		"ARGV", "KEYS", "error", "ipairs", "math", "pairs", "pcall", "redis", "string", "struct", "table", "tonumber", "type", "unpack",
	}
}

// A name that no local stands for is one of Redis's.
func TestLua_ScriptsUseNoGlobals(t *testing.T) {
	t.Parallel()
	texts, err := scriptTexts()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		chunk, err := parse.Parse(strings.NewReader(text), name)
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := lua.Compile(chunk, name)
		if err != nil {
			t.Fatal(err)
		}
		checkGlobals(t, name, compiled)
	}
}

func checkGlobals(t *testing.T, name string, f *lua.FunctionProto) {
	t.Helper()
	for i, instruction := range f.Code {
		op, constant := int(instruction>>26), int(instruction&0x3ffff)
		if op != lua.OP_GETGLOBAL && op != lua.OP_SETGLOBAL {
			continue
		}
		global := f.Constants[constant].String()
		if op == lua.OP_SETGLOBAL || !slices.Contains(globals(), global) {
			t.Errorf("%s, line %d: %s is no local", name, f.DbgSourcePositions[i], global)
		}
	}
	for _, inner := range f.FunctionPrototypes {
		checkGlobals(t, name, inner)
	}
}

// scriptTexts are all scripts by names, those of commands for each algorithm and for all of them.
var scriptTexts = sync.OnceValues(func() (map[string]string, error) {
	source := scripts.Source{Files: redisstore.LuaFolder(), Channel: "weir:freed"}
	all, failed := map[string]string{}, error(nil)
	add := func(name, file string, algorithms uint16) {
		text, err := source.Text(file, algorithms)
		all[name], failed = text, errors.Join(failed, err)
	}
	for _, file := range luaFiles("redisson") {
		if !slices.Contains([]string{"limiter", "pack", "count", "log", "window", "decide"}, file) {
			add("redisson "+file, "redisson/"+file, 0)
			add("redisson_window "+file, "redisson_window/"+file, 0)
		}
	}
	for _, c := range luaFiles("command") {
		add(c, c, 0)
		add(c+" all", c, 1<<limiter.NumAlgorithms-1)
	}
	for _, c := range append(luaFiles("command"), "one", "many") {
		for a := range limiter.NumAlgorithms {
			add(c+" "+a.String(), c, 1<<a)
		}
	}
	return all, failed
})

// luaFiles are the names of the files of a folder, without their ends.
func luaFiles(folder string) (names []string) {
	entries, err := fs.ReadDir(redisstore.LuaFolder(), folder)
	if err != nil {
		panic(err) // they are embedded
	}
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".lua"))
	}
	return names
}

// A script is sent once to each Redis: it has what its algorithm needs, and no more.
func TestLua_ScriptsAreShort(t *testing.T) {
	t.Parallel()
	texts, err := scriptTexts()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		most := 30_000
		switch kind, of, _ := strings.Cut(name, " "); {
		case kind == "one" || kind == "many": // with all that is inlined, and general scripts for what is unusual
			most = 54_000
		case of == "all":
			most = 84_000
		}
		if len(text) > most {
			t.Errorf("%s has %d bytes, more than %d", name, len(text), most)
		}
	}
}

// The body of a function that is inlined sees the locals of the place where it is put. So no local of a block
// or of such a function has the name of one that the files share.
func TestLua_InlinedFunctionsMayStandAnywhere(t *testing.T) {
	t.Parallel()
	source := scripts.Source{Files: redisstore.LuaFolder(), Plain: true}
	for a := range limiter.NumAlgorithms {
		for _, name := range []string{"one", "many"} {
			text, err := source.Text(name, 1<<a)
			if err != nil {
				t.Fatal(err)
			}
			checkNames(t, name+" "+a.String(), text)
		}
	}
}

func checkNames(t *testing.T, name, text string) {
	t.Helper()
	chunk, err := parse.Parse(strings.NewReader(text), name)
	if err != nil {
		t.Fatal(err)
	}
	s := scope{t: t, name: name}
	for _, statement := range chunk {
		if locals, ok := statement.(*ast.LocalAssignStmt); ok {
			s.declare(locals.Line(), locals.Names)
			s.shared = append(s.shared, locals.Names...)
		}
	}
	s.shared = append(s.shared, globals()...)
	for _, statement := range chunk {
		s.top(statement)
	}
}

// A scope checks the blocks of one script.
type scope struct {
	t      *testing.T
	name   string
	shared []string
}

func (s *scope) declare(line int, names []string) {
	s.t.Helper()
	for _, n := range names {
		if n != "_" && slices.Contains(s.shared, n) {
			s.t.Errorf("%s, line %d: the local %s hides another", s.name, line, n)
		}
	}
}

// top checks a statement that is in no block.
func (s scope) top(statement ast.Stmt) {
	s.t.Helper()
	locals, ok := statement.(*ast.LocalAssignStmt)
	if !ok {
		s.block([]ast.Stmt{statement})
	} else if f, ok := function(locals); ok && len(f.ParList.Names) == 0 {
		s.block(f.Stmts)
	}
}

// block checks the statements of a block.
func (s *scope) block(statements []ast.Stmt) {
	s.t.Helper()
	for _, statement := range statements {
		switch st := statement.(type) {
		case *ast.LocalAssignStmt:
			s.declare(st.Line(), st.Names)
		case *ast.DoBlockStmt:
			s.block(st.Stmts)
		case *ast.WhileStmt:
			s.block(st.Stmts)
		case *ast.RepeatStmt:
			s.block(st.Stmts)
		case *ast.IfStmt:
			s.block(st.Then)
			s.block(st.Else)
		case *ast.NumberForStmt:
			s.declare(st.Line(), []string{st.Name})
			s.block(st.Stmts)
		case *ast.GenericForStmt:
			s.declare(st.Line(), st.Names)
			s.block(st.Stmts)
		}
	}
}

// function is what a local function is.
func function(st *ast.LocalAssignStmt) (*ast.FunctionExpr, bool) {
	if len(st.Exprs) != 1 {
		return nil, false
	}
	f, ok := st.Exprs[0].(*ast.FunctionExpr)
	return f, ok
}

// Redis knows a script by its hash, and its errors name lines of its text: a change of either
// is seen in review.
func TestLua_ScriptsAreAsTheyWere(t *testing.T) {
	t.Parallel()
	texts, err := scriptTexts()
	if err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text := texts[name]
		fmt.Fprintf(&list, "%x  %s, %d lines\n", sha1.Sum([]byte(text)), name, 1+strings.Count(text, "\n"))
	}
	path := filepath.Join("testdata", "scripts.txt")
	if *update {
		if err := os.WriteFile(path, []byte(list.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := os.ReadFile(path); err != nil || string(was) != list.String() {
		t.Errorf("%s differs: see what changed with go test -run %s -update, and a script with go run ./limiter/redisstore/lua (%v)", path, t.Name(), err)
	}
}

// Each fault that the package comment lists has the test that it names.
func TestDoc_NamesItsTests(t *testing.T) {
	doc := filetest.Read(t, "doc.go")
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	suite, err := filepath.Glob("../limitertest/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range append(files, suite...) {
		b := filetest.Read(t, f)
		text.Write(b)
	}
	names := regexp.MustCompile(`(Test\w+)|limitertest (\w+)`).FindAllStringSubmatch(string(doc), -1)
	if len(names) < 17 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, name := range names {
		if name[1] != "" && !strings.Contains(text.String(), "func "+name[1]+"(t *testing.T)") {
			t.Errorf("no %s", name[1])
		}
		if name[2] != "" && !strings.Contains(text.String(), `{"`+name[2]+`", `) {
			t.Errorf("limitertest has no %s", name[2])
		}
	}
}
