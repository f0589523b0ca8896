package bundle

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// A recordingFiles reads files of this machine, relative ones from dir, and records their
// contents.
type recordingFiles struct {
	dir     string
	picked  map[string]string
	missing bool // a file could not be read
}

// Read implements config.FileSource.
func (r *recordingFiles) Read(path string, most int64) ([]byte, error) {
	data, err := form.ReadFile(within(r.dir, path), most)
	if err != nil {
		r.missing = true
		return nil, err
	}
	r.picked[path] = string(data)
	return data, nil
}

// Glob implements config.FileSource.
func (r *recordingFiles) Glob(pattern string) ([]string, error) {
	found, err := filepath.Glob(within(r.dir, pattern))
	for i := range found {
		if rel, err := filepath.Rel(r.dir, found[i]); err == nil && !filepath.IsAbs(pattern) {
			found[i] = rel
		}
	}
	return found, err
}

// Owner implements config.FileSource.
func (r *recordingFiles) Owner(string) config.FileOwner { return config.OfConfig }

// A bundleFiles reads files of a Bundle and, of the others, only those of this machine that
// are intended for it: in dir or below, and those that its own configuration names.
type bundleFiles struct {
	files map[string]string
	dir   string
	own   *config.Config
}

// Read implements config.FileSource.
func (b bundleFiles) Read(path string, most int64) ([]byte, error) {
	if text, ok := b.files[path]; ok {
		return []byte(text), nil
	}
	if full := within(b.dir, path); b.own.Names(filepath.Clean(full)) {
		return form.ReadFile(full, most)
	}
	if !b.holds(path) {
		return nil, config.ErrForeign
	}
	root, err := os.OpenRoot(b.dir)
	if err != nil {
		return nil, form.Pathless(err)
	}
	defer root.Close()
	inside, _ := filepath.Rel(b.dir, within(b.dir, path))
	f, err := root.OpenFile(inside, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if err = form.Pathless(err); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			err = config.ErrForeign // a symbolic link leads out of dir
		}
		return nil, err
	}
	if err := form.Regular(f); err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	return data, form.Pathless(err)
}

// Owner implements config.FileSource.
func (b bundleFiles) Owner(path string) config.FileOwner {
	_, came := b.files[path]
	switch {
	case came:
		return config.OfConfig
	case b.holds(path), b.own.Names(filepath.Clean(path)):
		return config.OfMachine
	}
	return config.Foreign
}

// holds reports whether path is lexically in dir or below.
func (b bundleFiles) holds(path string) bool {
	inside, err := filepath.Rel(b.dir, within(b.dir, path))
	return err == nil && filepath.IsLocal(inside)
}

// Glob finds only files of the Bundle.
func (b bundleFiles) Glob(pattern string) ([]string, error) {
	var found []string
	for name := range b.files {
		ok, err := path.Match(filepath.ToSlash(pattern), filepath.ToSlash(name))
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found, nil
}

// within resolves path relative to dir.
func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
