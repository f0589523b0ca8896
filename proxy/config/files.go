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
)

// A files is where files are read from, by the paths that files name each other
// by.
type files interface {
	read(path string) ([]byte, error)
	// glob is filepath.Glob.
	glob(pattern string) ([]string, error)
}

// diskFiles is the files of this machine.
type diskFiles struct{}

func (diskFiles) read(path string) ([]byte, error)      { return readFile(path) }
func (diskFiles) glob(pattern string) ([]string, error) { return filepath.Glob(pattern) }

// A recordingFiles reads files of this machine, relative ones from dir, and keeps what
// it has read.
type recordingFiles struct {
	dir     string
	picked  map[string]string
	missing bool // something could not be read
}

func (p *recordingFiles) read(path string) ([]byte, error) {
	data, err := readFile(within(p.dir, path))
	if err != nil {
		p.missing = true
		return nil, err
	}
	p.picked[path] = string(data)
	return data, nil
}

func (p *recordingFiles) glob(pattern string) ([]string, error) {
	found, err := filepath.Glob(within(p.dir, pattern))
	for i := range found {
		if rel, err := filepath.Rel(p.dir, found[i]); err == nil && !filepath.IsAbs(pattern) {
			found[i] = rel
		}
	}
	return found, err
}

// errForeign is said of all files of this machine that are not to be had, whether
// they are there or not: who sends a configuration must not learn that.
var errForeign = errors.New("not part of the pushed configuration, and not in the directory of this machine's own file")

// A bundleFiles is files that came from elsewhere, and of those that did not come along
// the ones of this machine that are meant for it: what lies in dir or below, and
// what its own file names.
type bundleFiles struct {
	files map[string]string
	dir   string
	own   map[string]bool
}

func (p bundleFiles) read(path string) ([]byte, error) {
	if text, ok := p.files[path]; ok {
		return []byte(text), nil
	}
	if full := within(p.dir, path); p.own[filepath.Clean(full)] {
		return readFile(full)
	}
	if !p.holds(path) {
		return nil, errForeign
	}
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return nil, pathless(err)
	}
	defer root.Close()
	inside, _ := filepath.Rel(p.dir, within(p.dir, path))
	f, err := root.OpenFile(inside, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if err = pathless(err); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			err = errForeign // a link leads out of dir
		}
		return nil, err
	}
	if err := regular(f); err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	return data, pathless(err)
}

// holds reports whether path is in dir or below, by its name.
func (p bundleFiles) holds(path string) bool {
	inside, err := filepath.Rel(p.dir, within(p.dir, path))
	return err == nil && filepath.IsLocal(inside)
}

// glob finds only what came along.
func (p bundleFiles) glob(pattern string) ([]string, error) {
	var found []string
	for name := range p.files {
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

// within is path, a relative one from dir.
func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
