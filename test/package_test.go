package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Who has installed a package continues with the quick start: its requests get what the
// README says.
func TestPackage_ServesTheQuickStart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("release/package/weir.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(text), `":8080"`, `"127.0.0.1:0"`, 1) + "admin: {http: \"127.0.0.1:0\"}\n"
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.yaml"), config)
	w := startWith(t, dir, "-c", "weir.yaml")
	if n := doc(t, "README.md").section(t, "Quick start").ask(t, strings.NewReplacer("localhost:8080", w.URL)); n != 5 {
		t.Errorf("the quick start has %d requests, want 5", n)
	}
}
