package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/await"
)

// watchFiles watches the files of a configuration until the test ends, and returns where
// their changes arrive.
func watchFiles(t *testing.T, path string) <-chan struct{} {
	t.Helper()
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	look := func(w *fsnotify.Watcher) [sha256.Size]byte { return hashFiles(w, configFiles(c, w)) }
	changes := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := watch(ctx, look, func(context.Context) { changes <- struct{}{} }); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); watching.Wait() })
	wantChange(t, changes, "a first look")
	return changes
}

func wantChange(t *testing.T, changes <-chan struct{}, what string) {
	t.Helper()
	await.Value(t, changes, "change after "+what)
}

// respondYAML is a configuration that answers with body.
func respondYAML(body string) string {
	return "routes: [{match: {path: /a}, respond: {body: '" + body + "'}}]\n"
}

func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWatch_EditorsReplaceTheFile(t *testing.T) {
	path := write(t, respondYAML("1"))
	changes := watchFiles(t, path)
	for _, body := range []string{"2", "3"} {
		if err := rewrite(path, respondYAML(body)); err != nil {
			t.Fatal(err)
		}
		wantChange(t, changes, "a rename")
	}
	replaceFile(t, path, respondYAML("4"))
	wantChange(t, changes, "a write")
}

func TestWatch_KubernetesSwapsALink(t *testing.T) {
	dir := t.TempDir()
	publish := func(version, yaml string) {
		t.Helper()
		data := filepath.Join(dir, "..data")
		err := errors.Join(
			os.Mkdir(filepath.Join(dir, version), 0o700),
			os.WriteFile(filepath.Join(dir, version, "weir.yaml"), []byte(yaml), 0o600),
			os.Symlink(version, data+"_tmp"),
			os.Rename(data+"_tmp", data),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	publish("..1", respondYAML("1"))
	path := filepath.Join(dir, "weir.yaml")
	if err := os.Symlink("..data/weir.yaml", path); err != nil {
		t.Fatal(err)
	}
	changes := watchFiles(t, path)
	for i, version := range []string{"..2", "..3"} {
		publish(version, respondYAML([]string{"2", "3"}[i]))
		wantChange(t, changes, "a swapped link")
	}
}

func TestWatch_SeesNewIncludedFiles(t *testing.T) {
	path := write(t, "include: [more/*.yaml]\n"+respondYAML("1"))
	more := filepath.Join(filepath.Dir(path), "more")
	if err := os.Mkdir(more, 0o700); err != nil {
		t.Fatal(err)
	}
	changes := watchFiles(t, path)
	replaceFile(t, filepath.Join(more, "b.yaml"), "keys: {b: {from: global}}\n")
	wantChange(t, changes, "a new included file")
}

// The file of a list belongs to the configuration.
func TestWatch_SeesFilesOfLists(t *testing.T) {
	path := write(t, "lists: {testers: {key: 'header:X-Phone', file: testers.txt, action: bypass}}\n"+
		"routes: [{match: {path: /a}, upstream: echo, lists: [testers]}]\n")
	file := filepath.Join(filepath.Dir(path), "testers.txt")
	replaceFile(t, file, "1\n")
	changes := watchFiles(t, path)
	replaceFile(t, file, "2\n")
	wantChange(t, changes, "a change of the list's file")
}

// A node reloads by itself when its file changes.
func TestNode_ReloadsWhenItsFileChanges(t *testing.T) {
	listen := "listen: {http: '127.0.0.1:0'}\nadmin: {http: '127.0.0.1:0'}\n"
	n := mustStart(t, write(t, listen+respondYAML("1")))
	if err := rewrite(n.source.path, listen+respondYAML("2")); err != nil {
		t.Fatal(err)
	}
	n.waitForLog("reloaded")
	if got := fetch(t, "http://"+n.Address("http")+"/a"); got != "2" {
		t.Errorf("serves %q", got)
	}
}
