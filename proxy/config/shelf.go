package config

import (
	"path"
	"path/filepath"
	"slices"
)

// A shelf is where files are read from, by the paths that files name each other
// by.
type shelf interface {
	read(path string) ([]byte, error)
	// glob is filepath.Glob.
	glob(pattern string) ([]string, error)
}

// disk is the files of this machine.
type disk struct{}

func (disk) read(path string) ([]byte, error)      { return readFile(path) }
func (disk) glob(pattern string) ([]string, error) { return filepath.Glob(pattern) }

// A picker reads files of this machine, relative ones from dir, and keeps what
// it has read.
type picker struct {
	dir     string
	picked  map[string]string
	missing bool // something could not be read
}

func (p *picker) read(path string) ([]byte, error) {
	data, err := readFile(within(p.dir, path))
	if err != nil {
		p.missing = true
		return nil, err
	}
	p.picked[path] = string(data)
	return data, nil
}

func (p *picker) glob(pattern string) ([]string, error) {
	found, err := filepath.Glob(within(p.dir, pattern))
	for i := range found {
		if rel, err := filepath.Rel(p.dir, found[i]); err == nil && !filepath.IsAbs(pattern) {
			found[i] = rel
		}
	}
	return found, err
}

// A parcel is files that came from elsewhere, and for those that did not come
// along, this machine: relative ones from dir.
type parcel struct {
	files map[string]string
	dir   string
}

func (p parcel) read(path string) ([]byte, error) {
	if text, ok := p.files[path]; ok {
		return []byte(text), nil
	}
	return readFile(within(p.dir, path))
}

// glob finds only what came along.
func (p parcel) glob(pattern string) ([]string, error) {
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
