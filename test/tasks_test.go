package test

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
			url := serveTask(t, files[0])
			for _, line := range task.curls() {
				askTask(t, url, line)
			}
		})
	}
}

// serveTask starts Weir with a configuration of the page, on ports that nobody else has.
func serveTask(t *testing.T, config string) (url string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tls"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeCertificate(t, dir)
	for was, name := range map[string]string{"cert.pem": "tls/weir.pem", "key.pem": "tls/weir.key"} {
		if err := os.Rename(filepath.Join(dir, was), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "plans.txt"), "partner-1=partner\n")
	listeners := weirtest.Listeners
	if strings.Contains(config, "listen:") {
		_, admin, _ := strings.Cut(listeners, "\nadmin:")
		listeners = "\nadmin:" + admin
		config = strings.NewReplacer(":8080", "127.0.0.1:0", ":8443", "127.0.0.1:0", "{h2c: true}", `{h2c: true, http: "127.0.0.1:0"}`).Replace(config)
	}
	write(t, filepath.Join(dir, "weir.yaml"), config+listeners)
	return weirtest.Start(t, inDir(exec.Command("weir", "-c", "weir.yaml"), dir)).URL
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
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
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
