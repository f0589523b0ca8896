package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// What is written while a file is renamed and opened anew is in one of the two.
func TestLogFile_ReopenLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	file, err := openLogFile(path)
	if err != nil {
		t.Fatal(err)
	}
	queue := newLogQueue(file)
	const lines = 20_000
	var all sync.WaitGroup
	all.Go(func() {
		for i := range lines {
			fmt.Fprintf(queue, "%d\n", i)
		}
	})
	const times = 20
	for i := range times {
		if err := os.Rename(path, fmt.Sprint(path, ".", i)); err != nil {
			t.Fatal(err)
		}
		if err := file.reopen(); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	queue.Close()
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for i := range times {
		text.WriteString(contents(t, fmt.Sprint(path, ".", i)))
	}
	text.WriteString(contents(t, path))
	next := 0
	for line := range strings.Lines(text.String()) {
		if line != fmt.Sprintf("%d\n", next) {
			t.Fatalf("line %d is %q", next, line)
		}
		next++
	}
	if next != lines || queue.dropped.Load() != 0 {
		t.Errorf("%d lines of %d, %d dropped", next, lines, queue.dropped.Load())
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A folder that is gone leaves the file as it was, and it is added to, not begun anew.
func TestLogFile_ReopenThatFailsChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path, moved := filepath.Join(dir, "access.log"), dir+"-moved"
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := openLogFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := file.reopen(); err == nil {
		t.Error("a file was opened in a folder that is gone")
	}
	if _, err := file.Write([]byte("after\n")); err != nil {
		t.Fatal(err)
	}
	if text := contents(t, filepath.Join(moved, "access.log")); text != "before\nafter\n" {
		t.Errorf("the file has %q", text)
	}
}
