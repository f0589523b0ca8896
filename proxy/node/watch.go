package node

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// settleTime is how long files must not change before they are read: editors and Kubernetes
	// change them in several steps.
	settleTime = 150 * time.Millisecond
	// rescanInterval is the interval at which files are read anyway, for file systems that report
	// no events.
	rescanInterval = 30 * time.Second
)

// A fingerprint returns a hash of the content of some files, and adds their directories to w.
type fingerprint func(w *fsnotify.Watcher) [sha256.Size]byte

// watch calls changed whenever the hash returned by look changes, and once at the beginning, until
// ctx is done. It watches directories instead of files, because editors and Kubernetes replace
// files. If a directory cannot be watched, changes are found every rescanInterval.
func watch(ctx context.Context, look fingerprint, changed func(context.Context)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer func() { go w.Close() }() // nobody waits for it: on a busy machine it takes the kernel seconds

	var seen [sha256.Size]byte // zero: the files may have changed since they were loaded
	look(w)
	again := time.NewTicker(rescanInterval)
	defer again.Stop()
	settled := time.NewTimer(0)
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events: // the kinds of events differ between systems
			settled.Reset(settleTime)
		case <-w.Errors: // events may have been lost
			settled.Reset(settleTime)
		case <-again.C:
			settled.Reset(0)
		case <-settled.C:
			if now := look(w); now != seen {
				seen = now
				changed(ctx)
				look(w) // watch new files
			}
		}
	}
}

// configFiles returns the files of the current configuration, and those that match its patterns
// now.
func configFiles(c *config.Config, w *fsnotify.Watcher) []string {
	files := slices.Clone(c.Files)
	for _, g := range c.Globs {
		found, _ := filepath.Glob(g) // patterns are valid
		files = append(files, found...)
		w.Add(filepath.Dir(g))
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// hashFiles watches the directories of files and returns a hash of their content.
func hashFiles(w *fsnotify.Watcher, files []string) [sha256.Size]byte {
	h := sha256.New()
	for _, f := range files {
		w.Add(filepath.Dir(f)) // on failure the file is found by rescanning
		if real, err := filepath.EvalSymlinks(f); err == nil {
			w.Add(filepath.Dir(real))
		}
		n, err := hashFile(h, f)
		fmt.Fprintf(h, "%q %d %v\n", f, n, err != nil)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// hashFile writes the content of a file to h, without holding it in memory: a list may be long.
func hashFile(h hash.Hash, name string) (size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.Copy(h, f)
}
