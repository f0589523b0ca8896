package config

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// The maximum sizes of files named by fields, in bytes.
const (
	maxAttached = form.MaxSize
	maxList     = 128 << 20 // millions of values
)

// attach reads the file named by a field, of at most most bytes, relative to the file that contains the field. Its
// content is part of the configuration: it is included in the hash, and the file in Files.
// It reports whether there is content; an empty name has none, and a file that cannot be
// read is a problem.
func (r *loader) attach(name *string, most int64) ([]byte, bool) {
	if *name == "" {
		return nil, false
	}
	if r.sealed {
		r.Wrong(name, "cannot read files from here", "leave it out")
		return nil, false
	}
	path := *name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(r.Location(name).File), path)
	}
	r.own[filepath.Clean(path)] = true
	data, err := r.source.Read(path, most)
	r.files = append(r.files, path)
	if errors.Is(err, ErrForeign) {
		r.Wrong(name, form.Quote(*name)+" cannot be read: "+err.Error(), "put it there")
		return nil, false
	}
	if err != nil {
		r.Wrong(name, form.Quote(*name)+" cannot be read: "+err.Error(), "name a file that Weir may read")
		return nil, false
	}
	if int64(len(data)) > most {
		r.Wrong(name, fmt.Sprintf("%s is longer than %d MiB", form.Quote(*name), most>>20), "name a shorter file")
		return nil, false
	}
	r.count(*name, data)
	return data, true
}
