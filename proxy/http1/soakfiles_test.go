//go:build soak

package http1

import (
	"os"
	"strings"
	"testing"
)

// openFiles is how many sockets and pipes are open. The runtime opens files of its own.
func openFiles(t *testing.T) (count int) {
	for _, name := range openNames(t) {
		if strings.HasPrefix(name, "socket:") || strings.HasPrefix(name, "pipe:") {
			count++
		}
	}
	return count
}

// openNames are the files that are open.
func openNames(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		names = append(names, name)
	}
	return names
}
