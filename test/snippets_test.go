package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// wantVetted fails the test unless go vet, which compiles it, takes the file of that
// text. It imports what Weir may.
func wantVetted(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snippet.go")
	write(t, file, text)
	cmd := exec.CommandContext(t.Context(), "go", "vet", file)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, text)
	}
}

// unindent is text without indentation and empty lines.
func unindent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// examples are the bodies of the Example functions in the tests of a folder and
// those below, flat: go test compiles them, and runs those with an Output.
func examples(t *testing.T, folder string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, text, 0)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Example") {
				out = append(out, unindent(string(text[files.Position(f.Body.Lbrace).Offset+1:files.Position(f.Body.Rbrace).Offset])))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Go in a document can be copied: it is a whole program that compiles, or part of
// an Example of its package. What proxy/cluster says of alerts is run with one.
func TestDocuments_GoCompiles(t *testing.T) {
	t.Parallel()
	found := 0
	for _, d := range docs(t) {
		bodies := examples(t, filepath.Join("..", filepath.Dir(d.path)))
		for i, block := range d.blocks("go") {
			found++
			switch {
			case strings.HasPrefix(block, "package main\n"):
				t.Run(fmt.Sprint(d.path, i), func(t *testing.T) { wantVetted(t, block) })
			case d.path == "proxy/cluster/README.md" && strings.HasPrefix(block, "func genuine("):
			default:
				if !strings.Contains("\n"+strings.Join(bodies, "\n"), "\n"+unindent(block)) {
					t.Errorf("%s: this is no program, and no part of an Example of that folder:\n%s", d.path, block)
				}
				if _, err := parser.ParseFile(token.NewFileSet(), "block.go", "package p\nfunc f() {\n"+block+"\n}", 0); err != nil {
					t.Errorf("%s: %v in\n%s", d.path, err, block)
				}
			}
		}
	}
	if found < 12 {
		t.Errorf("%d blocks of Go found, want at least 12", found)
	}
}

// sides are what the tables Java | Go of a document say, in pairs.
func (d document) sides() (java, golang []string) {
	_, rest, _ := strings.Cut(d.text, "\n| Java | Go |\n|---|---|\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	code := regexp.MustCompile("`([^`]+)`")
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(row, "| \n"), " | ")
		java = append(java, code.FindStringSubmatch(cells[0])[1])
		for _, m := range code.FindAllStringSubmatch(cells[1], -1) {
			if strings.Contains(m[1], "(") {
				golang = append(golang, m[1])
			}
		}
	}
	return java, golang
}

// Every call in Go that stands beside Java compiles; every method in Java is one
// that test/interop/redisson, which is compiled with Redisson, calls too.
func TestDocuments_JavaAndGoAreReal(t *testing.T) {
	t.Parallel()
	verbs, err := os.ReadFile("interop/redisson/src/main/java/weir/Verbs.java")
	if err != nil {
		t.Fatal(err)
	}
	program := `package main

import (
	"context"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/lock"
)

var (
	ctx     context.Context
	locker  *lock.Locker
	hold    *lock.Hold
	a, b, c *lock.Lock
	sms     *redisstore.RateLimiter
	_       = limiter.Rate{Window: time.Second}
)

func main() {
`
	rows := 0
	for _, path := range []string{"lock/README.md", "limiter/README.md"} {
		java, golang := doc(t, path).sides()
		rows += len(java)
		for _, call := range java {
			for _, m := range regexp.MustCompile(`\.(\w+)\(`).FindAllStringSubmatch(call, -1) {
				if !regexp.MustCompile(`[."]` + m[1] + `\b`).Match(verbs) {
					t.Errorf("%s: %s of %s is not tried with Redisson", path, m[1], call)
				}
			}
		}
		program += strings.Join(golang, "\n") + "\n"
	}
	if rows < 25 {
		t.Errorf("%d rows found, want at least 25", rows)
	}
	wantVetted(t, program+"}\n")
}

// newClockedTake is a store whose clock a table sets, and a take from it.
func newClockedTake(t *testing.T, algorithm limiter.Algorithm) (take func(at string, cost int64) limiter.Decision) {
	t.Helper()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := begin
	store := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
	limit := &limiter.Limit{Name: "t", Rate: limiter.Rate{Count: 5, Window: time.Minute}, Algorithm: algorithm}
	return func(at string, cost int64) (d limiter.Decision) {
		since, err := time.ParseDuration(at + "s")
		if err != nil {
			t.Fatal(err)
		}
		now = begin.Add(since)
		if err := store.Take(t.Context(), []limiter.Claim{{Limit: limit, Key: limiter.KeyOf("p"), Cost: cost}}, &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
}

// The tables of limiter/README.md are played against the store.
func TestDocuments_WindowsAreTrue(t *testing.T) {
	text := doc(t, "limiter/README.md").section(t, "Window").text
	rows := regexp.MustCompile(`(?m)^\| ([\d.]+) s \| (\d) \| (\d) \| (granted|refused; wait ([\d.]+) s)`).FindAllStringSubmatch(text, -1)
	take := newClockedTake(t, limiter.TokenBucket)
	for _, r := range rows {
		cost, left := int64(r[2][0]-'0'), int64(r[3][0]-'0')
		d := take(r[1], cost)
		if d.Allowed {
			left -= cost
		}
		wait, _ := time.ParseDuration(r[5] + "s") // zero if it is granted
		if d.Allowed != (r[4] == "granted") || d.Wait != wait || d.Outcomes[0].Remaining != left {
			t.Errorf("row %q: the store says %+v", r[0], d)
		}
	}
	both := regexp.MustCompile(`(?m)^\| ([\d.]+) s \| (\d) granted.* \| (\d) granted`).FindAllStringSubmatch(text, -1)
	for column, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.TokenBucket} {
		take := newClockedTake(t, algorithm)
		for i, r := range both {
			granted := 0
			for asked := 0; asked < 5 && (i > 0 || asked < 1) && take(r[1], 1).Allowed; asked++ {
				granted++
			}
			if want := int(r[2+column][0] - '0'); granted != want {
				t.Errorf("row %q: %v grants %d", r[0], algorithm, granted)
			}
		}
	}
	if len(rows) < 7 || len(both) < 3 {
		t.Errorf("%d and %d rows found", len(rows), len(both))
	}
}
