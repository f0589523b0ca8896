package config

import (
	"path/filepath"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// A named file is one that a field names and that is opened only when Weir serves:
// certificates of listeners, keys of tokens.
type named struct {
	at   form.Location
	path string
}

// opens notes that the file that the field at pointer names is opened later, and
// returns where that is.
func (r *loader) opens(pointer *string) string {
	path := r.relative(*pointer)
	if path == "" {
		return ""
	}
	r.later = append(r.later, named{r.Location(pointer), path})
	r.own[filepath.Clean(path)] = true
	if r.source.Owner(path) == Foreign {
		r.Wrong(pointer, form.Quote(*pointer)+" cannot be read: "+ErrForeign.Error(), "put it there")
	}
	return path
}

// Missing are the files that Weir opens when it starts and could not open now, here
// and as this user. They are no fault of the configuration, which may be checked
// elsewhere before the files are there; so Load does not look for them.
func (c *Config) Missing() Problems {
	var all []Problem
	for _, n := range c.opened {
		f, err := form.OpenFile(n.path)
		if err == nil {
			f.Close()
			continue
		}
		all = append(all, Problem{Position: n.at.Position, Path: n.at.Path, What: form.Quote(n.path) + " cannot be read: " + err.Error(), Instead: "name a file that Weir may read"})
	}
	return form.Arrange(all, c.Files)
}
