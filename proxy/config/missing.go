package config

// A named file is one that a field names and that is opened only when Weir serves:
// certificates of listeners, keys of tokens.
type named struct {
	place place
	path  string
}

// opens notes that the file that the field at pointer names is opened later, and
// returns where that is.
func (r *reading) opens(pointer *string) string {
	path := r.beside(*pointer)
	if path != "" {
		r.later = append(r.later, named{r.places[pointer], path})
	}
	return path
}

// Missing are the files that Weir opens when it starts and could not open now, here
// and as this user. They are no fault of the configuration, which may be checked
// elsewhere before the files are there; so Load does not look for them.
func (c *Config) Missing() Problems {
	var all []Problem
	for _, n := range c.opened {
		f, err := openFile(n.path)
		if err == nil {
			f.Close()
			continue
		}
		all = append(all, Problem{n.place.Position, n.place.path, quote(n.path) + " cannot be read: " + err.Error(), "name a file that Weir may read"})
	}
	return arrange(all, c.Files)
}
