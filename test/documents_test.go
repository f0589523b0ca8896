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
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/filetest"
)

// A document is one *.md file.
type document struct {
	path string // from the top of the repository
	text string
}

// docs are all documents.
func docs(t *testing.T) []document {
	t.Helper()
	var out []document
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && (name == "testdata" || strings.HasPrefix(name, ".") && name != "..") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		b, err := os.ReadFile(path)
		out = append(out, document{filepath.ToSlash(strings.TrimPrefix(path, "../")), string(b)})
		return err
	})
	check(t, err)
	if len(out) < 8 {
		t.Fatalf("%d documents found, want at least 8", len(out))
	}
	return out
}

// doc is the document of that path.
func doc(t *testing.T, path string) document {
	t.Helper()
	all := docs(t)
	i := slices.IndexFunc(all, func(d document) bool { return d.path == path })
	if i < 0 {
		t.Fatalf("there is no %s", path)
	}
	return all[i]
}

// prose is the text of all documents.
func prose(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, d := range docs(t) {
		b.WriteString(d.text + "\n")
	}
	return b.String()
}

// blocks are the fenced code blocks of that language.
func (d document) blocks(language string) []string {
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(d.text, -1) {
		out = append(out, m[1])
	}
	return out
}

// section is what stands under a heading of the second level.
func (d document) section(t *testing.T, heading string) document {
	t.Helper()
	_, rest, found := strings.Cut(d.text, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", d.path, heading)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return document{d.path, text + "\n"}
}

// blocks are those of all documents, of which there must be one.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	var out []string
	for _, d := range docs(t) {
		out = append(out, d.blocks(language)...)
	}
	if len(out) == 0 {
		t.Fatalf("no document has a block of %s", language)
	}
	return out
}

func TestDocuments_ReadmeIsShort(t *testing.T) {
	if size := len(doc(t, "README.md").text); size > 12<<10 {
		t.Errorf("README.md has %d bytes, want at most %d: reference belongs beside the code", size, 12<<10)
	}
}

// A page of the reference is read at once, and in a window beside an editor.
func TestDocuments_PagesAreShort(t *testing.T) {
	pages := 0
	for _, d := range docs(t) {
		if !strings.HasPrefix(d.path, "proxy/docs/") {
			continue
		}
		pages++
		if len(d.text) > 15<<10 {
			t.Errorf("%s has %d bytes, want at most %d", d.path, len(d.text), 15<<10)
		}
		code := false
		for i, line := range strings.Split(d.text, "\n") {
			code = code != strings.HasPrefix(line, "```")
			if !code && !strings.HasPrefix(line, "|") && utf8.RuneCountInString(line) > 132 {
				t.Errorf("%s:%d has %d columns, want at most 132", d.path, i+1, utf8.RuneCountInString(line))
			}
		}
	}
	if pages < 15 {
		t.Errorf("%d pages found", pages)
	}
}

// The headings are what readers search for.
func TestDocuments_HaveTheHeadings(t *testing.T) {
	text := prose(t)
	for _, heading := range []string{
		"Install", "Quick start", "Quick start with Redis", "Routes and paths", "Keys", "Limits", "Algorithms", "Cluster", "Failure", "Privacy",
		"Security", "Metrics", "Troubleshooting", "Comparison", "Performance", "Go packages", "Redisson", "Upgrading",
	} {
		if !regexp.MustCompile(`(?m)^##?#? ` + heading + `$`).MatchString(text) {
			t.Errorf("no document has the heading %q", heading)
		}
	}
}

// anchors are those that GitHub gives to the headings of a document.
func (d document) anchors() []string {
	var out []string
	code := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(d.text, "")
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(code, -1) {
		anchor := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(anchor, " ", "-"))
	}
	return out
}

// Each relative link leads to a file that there is, and to a heading of it.
func TestDocuments_LinksLeadSomewhere(t *testing.T) {
	anchors := map[string][]string{}
	for _, d := range docs(t) {
		anchors[d.path] = d.anchors()
	}
	found := 0
	for _, d := range docs(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(d.text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			found++
			file, anchor, anchored := strings.Cut(m[1], "#")
			path := d.path
			if file != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(d.path), file))
			}
			if _, err := os.Stat(filepath.Join("..", path)); err != nil {
				t.Errorf("%s links to %s, which is not there", d.path, m[1])
			}
			if anchored && !slices.Contains(anchors[path], anchor) {
				t.Errorf("%s links to %s; %s has the anchors %v", d.path, m[1], path, anchors[path])
			}
		}
	}
	if found < 40 {
		t.Errorf("%d links found, want at least 40", found)
	}
}

// Every document can be reached from the README.
func TestDocuments_AreReachedFromTheReadme(t *testing.T) {
	reached, next := map[string]bool{}, []string{"README.md"}
	for len(next) > 0 {
		path := next[0]
		next = next[1:]
		if reached[path] {
			continue
		}
		reached[path] = true
		for _, m := range regexp.MustCompile(`\]\(([^)#\s]+\.md)[^)]*\)`).FindAllStringSubmatch(doc(t, path).text, -1) {
			next = append(next, filepath.ToSlash(filepath.Join(filepath.Dir(path), m[1])))
		}
	}
	for _, d := range docs(t) {
		if !reached[d.path] {
			t.Errorf("no link leads to %s", d.path)
		}
	}
}

// No configuration in the documents bans by a key that clients can send for others: with it anybody
// could shut out somebody else's number.
func TestDocuments_BanByAddress(t *testing.T) {
	penalty, by := regexp.MustCompile(`\{.*penalty: \{`), regexp.MustCompile(`key: (client_ip|ip)\b`)
	bans := 0
	check := func(path, text string) {
		for line := range strings.Lines(text) {
			if penalty.MatchString(line) {
				bans++
				if !by.MatchString(line) {
					t.Errorf("%s bans by something else than the address: %s", path, line)
				}
			}
		}
	}
	for _, d := range docs(t) {
		for _, text := range d.blocks("yaml") {
			check(d.path, text)
		}
	}
	example := filetest.Read(t, "../config.example.yaml")
	check("config.example.yaml", string(example))
	if bans < 3 {
		t.Errorf("%d limits with a penalty are found; want those of the documents", bans)
	}
}

// What a link of a document in a release leads to is in the release as well.
func TestDocuments_OfAReleaseLeadNowhereElse(t *testing.T) {
	build := filetest.Read(t, "release/build")
	list := regexp.MustCompile(`(?s)\ndocuments=\((.*?)\)\n`).FindStringSubmatch(string(build))
	if list == nil {
		t.Fatal("test/release/build names no documents")
	}
	released := func(path string) bool {
		return slices.ContainsFunc(strings.Fields(list[1]), func(one string) bool {
			same, err := filepath.Match(one, path)
			return err == nil && same || strings.HasPrefix(path, one+"/") || strings.HasPrefix(one, path+"/")
		})
	}
	for _, d := range docs(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`).FindAllStringSubmatch(d.text, -1) {
			path := filepath.ToSlash(filepath.Join(filepath.Dir(d.path), m[1]))
			if !strings.Contains(m[1], "://") && released(d.path) && !released(path) {
				t.Errorf("%s is in a release, and links to %s, which is not", d.path, path)
			}
		}
	}
}

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
	check(t, err)
	return out
}

// Go in a document can be copied: it is a whole program that compiles, or part of
// an Example of its package. What proxy/docs/log.md says of alerts is run with one.
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
			case d.path == "proxy/docs/log.md" && strings.HasPrefix(block, "func genuine("):
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
	verbs := filetest.Read(t, "interop/redisson/src/main/java/weir/Verbs.java")
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
	for _, path := range []string{"lock/README.md", "limiter/redisstore/README.md"} {
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
	for _, kind := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (?:`(?:R|getM)|none)").FindAllStringSubmatch(doc(t, "lock/README.md").text, -1) {
		program += regexp.MustCompile(`locker\.(Multi|Redlock)$`).ReplaceAllString("_ = locker."+kind[1], "lock.$1") + "\n"
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
		check(t, err)
		now = begin.Add(since)
		check(t, store.Take(t.Context(), []limiter.Claim{{Limit: limit, Key: limiter.KeyOf("p"), Cost: cost}}, &d))
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
