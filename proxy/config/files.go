package config

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// A files is a source of files, by the names that files use for each other.
type files interface {
	read(path string) ([]byte, error)
	// glob is filepath.Glob.
	glob(pattern string) ([]string, error)
}

// diskFiles reads the files of this machine.
type diskFiles struct{}

func (diskFiles) read(path string) ([]byte, error)      { return readFile(path) }
func (diskFiles) glob(pattern string) ([]string, error) { return filepath.Glob(pattern) }

// A recordingFiles reads files of this machine, relative ones from dir, and records their
// contents.
type recordingFiles struct {
	dir     string
	picked  map[string]string
	missing bool // a file could not be read
}

func (r *recordingFiles) read(path string) ([]byte, error) {
	data, err := readFile(within(r.dir, path))
	if err != nil {
		r.missing = true
		return nil, err
	}
	r.picked[path] = string(data)
	return data, nil
}

func (r *recordingFiles) glob(pattern string) ([]string, error) {
	found, err := filepath.Glob(within(r.dir, pattern))
	for i := range found {
		if rel, err := filepath.Rel(r.dir, found[i]); err == nil && !filepath.IsAbs(pattern) {
			found[i] = rel
		}
	}
	return found, err
}

// errForeign is the error for all other files of this machine, whether they exist or not,
// which the sender of a configuration must not learn.
var errForeign = errors.New("not part of the pushed configuration, and not in the directory of this machine's own file")

// A bundleFiles reads files of a Bundle and, of the others, only those of this machine that
// are intended for it: in dir or below, and those that its own configuration names.
type bundleFiles struct {
	files map[string]string
	dir   string
	own   map[string]bool
}

func (b bundleFiles) read(path string) ([]byte, error) {
	if text, ok := b.files[path]; ok {
		return []byte(text), nil
	}
	if full := within(b.dir, path); b.own[filepath.Clean(full)] {
		return readFile(full)
	}
	if !b.holds(path) {
		return nil, errForeign
	}
	root, err := os.OpenRoot(b.dir)
	if err != nil {
		return nil, pathless(err)
	}
	defer root.Close()
	inside, _ := filepath.Rel(b.dir, within(b.dir, path))
	f, err := root.OpenFile(inside, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if err = pathless(err); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			err = errForeign // a symbolic link leads out of dir
		}
		return nil, err
	}
	if err := regular(f); err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, form.MaxSize+1))
	return data, pathless(err)
}

// holds reports whether path is lexically in dir or below.
func (b bundleFiles) holds(path string) bool {
	inside, err := filepath.Rel(b.dir, within(b.dir, path))
	return err == nil && filepath.IsLocal(inside)
}

// glob finds only files of the Bundle.
func (b bundleFiles) glob(pattern string) ([]string, error) {
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
