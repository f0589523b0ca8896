package config

import (
	"errors"
	"path/filepath"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// maxAttached is the maximum size of a file named by a field, in bytes.
const maxAttached = form.MaxSize

// attach reads the file named by a field, relative to the file that contains the field. Its
// content is part of the configuration: it is included in the hash, and the file in Files.
// It reports whether there is content; an empty name has none, and a file that cannot be
// read is a problem.
func (r *loader) attach(name *string) ([]byte, bool) {
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
	data, err := r.source.Read(path)
	r.files = append(r.files, path)
	if errors.Is(err, ErrForeign) {
		r.Wrong(name, form.Quote(*name)+" cannot be read: "+err.Error(), "put it there")
		return nil, false
	}
	if err != nil {
		r.Wrong(name, form.Quote(*name)+" cannot be read: "+err.Error(), "name a file that Weir may read")
		return nil, false
	}
	if len(data) > maxAttached {
		r.Wrong(name, form.Quote(*name)+" is longer than 8 MiB", "name a shorter file")
		return nil, false
	}
	r.count(*name, data)
	return data, true
}
