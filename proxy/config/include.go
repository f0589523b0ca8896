package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// include adds the keys, lists, limits, upstreams and routes of the files that main includes. It reports whether all could
// be read.
func (r *loader) include(path string, main *file) (whole bool) {
	whole = true
	read := map[string]bool{filepath.Clean(path): true}
	dir := filepath.Dir(path)
	for i := range main.Include {
		pattern := main.Include[i]
		if pattern == "" {
			continue // already reported
		}
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(dir, pattern)
		}
		r.globs = append(r.globs, pattern)
		matches, err := r.source.Glob(pattern)
		switch {
		case err != nil:
			whole = false
			r.Wrong(&main.Include[i], "not a pattern", `write for example "conf.d/*.yaml"`)
		case len(matches) == 0 && !strings.ContainsAny(pattern, "*?["):
			whole = false
			r.Wrong(&main.Include[i], "there is no such file", "name a file that exists, or a pattern with *")
		}
		for _, match := range matches {
			if read[match] {
				continue
			}
			read[match] = true
			id, err := filepath.Rel(dir, match)
			if err != nil {
				id = match
			}
			part := r.open(match, id)
			if part == nil {
				whole = false
				continue
			}
			r.merge(main, part)
		}
	}
	return whole
}

// merge adds what an included file has to main.
func (r *loader) merge(main, part *file) {
	v := reflect.ValueOf(part).Elem()
	for i := range v.NumField() {
		switch name := form.FieldName(v.Type().Field(i)); name {
		case "keys", "lists", "limits", "upstreams", "routes":
		default:
			if pointer := v.Field(i).Addr().Interface(); r.Given(pointer) {
				r.WrongName(pointer, "has no place in an included file", "move it to "+r.files[0])
			}
		}
	}
	add(r, &main.Keys, part.Keys)
	add(r, &main.Lists, part.Lists)
	add(r, &main.Limits, part.Limits)
	add(r, &main.Upstreams, part.Upstreams)
	main.Routes = append(main.Routes, part.Routes...)
}

// add adds the entries of part to all; a name may stand in one file only.
func add[T any](r *loader, all *map[string]*T, part map[string]*T) {
	if *all == nil {
		*all = map[string]*T{}
	}
	for name, v := range part {
		if first, ok := (*all)[name]; ok {
			at := r.Location(first)
			r.WrongName(v, fmt.Sprintf("%q is given twice, first at %s", name, at.Position), "give one of them another name")
			continue
		}
		(*all)[name] = v
	}
}
