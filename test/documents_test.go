package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
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
	if err != nil {
		t.Fatal(err)
	}
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
	example, err := os.ReadFile("../config.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	check("config.example.yaml", string(example))
	if bans < 3 {
		t.Errorf("%d limits with a penalty are found; want those of the documents", bans)
	}
}

// What a link of a document in a release leads to is in the release as well.
func TestDocuments_OfAReleaseLeadNowhereElse(t *testing.T) {
	build, err := os.ReadFile("release/build")
	if err != nil {
		t.Fatal(err)
	}
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
