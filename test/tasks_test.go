package test

import (
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/weirtest"
)

// Each task is a configuration of at most 12 lines, which is served, and its requests are answered as
// the page says.
func TestTasks_DoWhatThePageSays(t *testing.T) {
	t.Parallel()
	page := doc(t, "proxy/docs/tasks.md")
	headings := regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(page.text, -1)
	if len(headings) < 20 {
		t.Fatalf("%d tasks, want at least 20", len(headings))
	}
	for _, h := range headings {
		t.Run(h[1], func(t *testing.T) {
			t.Parallel()
			task := page.section(t, h[1])
			files := task.blocks("yaml")
			if len(files) != 1 || strings.Count(files[0], "\n") > 12 {
				t.Fatalf("%d configurations, want one of at most 12 lines:\n%s", len(files), strings.Join(files, "\n"))
			}
			dir := t.TempDir()
			w := serveTask(t, dir, files[0])
			for _, line := range task.commands("curl", "weir") {
				if strings.HasPrefix(line, "weir ") {
					runLine(t, dir, w.Admin, line)
				} else {
					askTask(t, w.URL, line)
				}
			}
		})
	}
}

// The first configuration of a page about one thing is served as it stands as well.
func TestTasks_ABudgetIsSpentAsThePageSays(t *testing.T) {
	t.Parallel()
	page := doc(t, "proxy/docs/budgets.md")
	w := serveTask(t, t.TempDir(), page.blocks("yaml")[0])
	for _, line := range page.commands("curl") {
		askTask(t, w.URL, line)
	}
}

// serveTask starts Weir with a configuration of the page, on ports that nobody else has.
func serveTask(t *testing.T, dir, config string) *weirtest.Process {
	t.Helper()
	writeNamed(t, dir)
	listeners := weirtest.Listeners
	if strings.Contains(config, "listen:") {
		_, admin, _ := strings.Cut(listeners, "\nadmin:")
		listeners = "\nadmin:" + admin
		config = strings.NewReplacer(":8080", "127.0.0.1:0", ":8443", "127.0.0.1:0", "{h2c: true}", `{h2c: true, http: "127.0.0.1:0"}`).Replace(config)
	}
	write(t, filepath.Join(dir, "weir.yaml"), config+listeners)
	return weirtest.Start(t, inDir(exec.Command("weir", "-c", "weir.yaml"), dir))
}

func inDir(cmd *exec.Cmd, dir string) *exec.Cmd {
	cmd.Dir = dir
	return cmd
}

// askTask sends the request of a line of the page and compares the status behind its #.
func askTask(t *testing.T, url, line string) {
	t.Helper()
	asked, want, _ := strings.Cut(line, "#")
	asked, body := cutBody(asked)
	method, target, header := curl(t, strings.Replace(asked, "localhost:8080", url, 1))
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	check(t, err)
	req.Header = header
	res, err := http.DefaultTransport.RoundTrip(req) // which follows no redirect
	check(t, err)
	defer res.Body.Close()
	answer, _ := io.ReadAll(res.Body)
	if got := res.Status[:3]; got != strings.TrimSpace(want) {
		t.Errorf("%s is answered %s %s", line, res.Status, answer)
	}
}

// cutBody cuts -d 'BODY' out of a command line of curl.
func cutBody(line string) (rest, body string) {
	m := regexp.MustCompile(`-d '([^']*)' `).FindStringSubmatchIndex(line)
	if m == nil {
		return line, ""
	}
	return line[:m[0]] + line[m[1]:], line[m[2]:m[3]]
}

// A page is read by people who were not there when it was written.
func TestDocuments_SentencesAreShort(t *testing.T) {
	paths := []string{"README.md", "limiter/README.md", "limiter/redisstore/README.md", "lock/README.md", "proxy/README.md"}
	pages := 0
	for _, d := range docs(t) {
		if !slices.Contains(paths, d.path) && !strings.HasPrefix(d.path, "proxy/docs/") {
			continue
		}
		pages++
		words, sentences := d.sentences()
		if words > 25*sentences {
			t.Errorf("%s has %d words in %d sentences, want at most 25 a sentence on average", d.path, words, sentences)
		}
	}
	if pages < 20 {
		t.Errorf("%d pages were read", pages)
	}
	text := "# One\n\n- two words\n  more. And three more!\n1. it is `a.b`\n\n| a | b |\n```\ncode\n```\n    code\n\nEnd: that is one."
	if words, sentences := (document{text: text}).sentences(); words != 13 || sentences != 4 {
		t.Errorf("counted %d words in %d sentences, want 13 in 4", words, sentences)
	}
}

// sentences counts the words and sentences of the prose: no code, tables, headings and markers of lists.
func (d document) sentences() (words, sentences int) {
	marker := regexp.MustCompile(`^([-*]|\d+\.)\s+`)
	code, open := false, false
	end := func() {
		if open {
			sentences++
		}
		open = false
	}
	for line := range strings.Lines(d.text) {
		s := strings.TrimSpace(line)
		fence := strings.HasPrefix(s, "```")
		code = code != fence
		if code || fence || s == "" || strings.HasPrefix(line, "    ") || strings.ContainsAny(s[:1], "#|!<") {
			end()
			continue
		}
		if m := marker.FindString(s); m != "" {
			end()
			s = s[len(m):]
		}
		for _, word := range strings.Fields(s) {
			words, open = words+1, true
			if strings.ContainsAny(strings.TrimRight(word, "`)*\"")[len(strings.TrimRight(word, ".!?`)*\"")):], ".!?") {
				end()
			}
		}
	}
	end()
	return words, sentences
}
