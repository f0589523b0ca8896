// Package filetest reads and writes files of tests, which end if that fails.
package filetest

import (
	"os"
	"path/filepath"
	"testing"
)

// Read is what a file holds.
func Read(tb testing.TB, path string) []byte {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// Write writes a file that its owner alone may read, in a folder that there may not have been, and returns its path, which
// is that of its parts.
func Write(tb testing.TB, text string, path ...string) string {
	tb.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return name
}

// Files writes files, of which each name is followed by its text, to a folder of their own, and returns the path of the
// first.
func Files(tb testing.TB, files ...string) (path string) {
	tb.Helper()
	dir := tb.TempDir()
	for i := 0; i < len(files); i += 2 {
		Write(tb, files[i+1], dir, files[i])
	}
	return filepath.Join(dir, files[0])
}
