package node

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// settleTime is how long the files must be left alone before they are read:
	// editors and Kubernetes change them in several steps.
	settleTime = 150 * time.Millisecond
	// rescanInterval is how often the files are looked at anyway, for file systems
	// that report nothing.
	rescanInterval = 30 * time.Second
)

// A fingerprint is a sum of what is in some files, whose directories it adds to w.
type fingerprint func(w *fsnotify.Watcher) [sha256.Size]byte

// watch calls changed whenever look sees something else than before, and once at
// the beginning, until ctx is done. Directories are watched, not the files, because
// editors and Kubernetes put new files in the place of old ones. Where a directory
// cannot be watched, the files are looked at every rescanInterval.
func watch(ctx context.Context, look fingerprint, changed func(context.Context)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer w.Close()

	var seen [sha256.Size]byte // nothing yet: they may have changed since they were read
	look(w)
	again := time.NewTicker(rescanInterval)
	defer again.Stop()
	settled := time.NewTimer(0)
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events: // which, and of what kind, differs between systems
			settled.Reset(settleTime)
		case <-w.Errors: // events were lost: look
			settled.Reset(settleTime)
		case <-again.C:
			settled.Reset(0)
		case <-settled.C:
			if now := look(w); now != seen {
				seen = now
				changed(ctx)
				look(w) // there may be other files to watch now
			}
		}
	}
}

// configFiles are the files of the configuration that is served, and those that its
// patterns match by now.
func configFiles(c *config.Config, w *fsnotify.Watcher) []string {
	files := slices.Clone(c.Files)
	for _, g := range c.Globs {
		found, _ := filepath.Glob(g) // checked when it was loaded
		files = append(files, found...)
		w.Add(filepath.Dir(g))
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// lookAt watches the directories of files and sums up what is in the files.
func lookAt(w *fsnotify.Watcher, files []string) [sha256.Size]byte {
	h := sha256.New()
	for _, f := range files {
		w.Add(filepath.Dir(f)) // a directory that cannot be watched is looked at
		if real, err := filepath.EvalSymlinks(f); err == nil {
			w.Add(filepath.Dir(real))
		}
		b, err := os.ReadFile(f)
		fmt.Fprintf(h, "%q %d %v\n", f, len(b), err != nil)
		h.Write(b)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
