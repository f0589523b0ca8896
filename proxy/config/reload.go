package config

// A Source is the source of the configuration.
type Source string

// The sources.
const (
	SourceFile  Source = "file"  // the file with which Weir was started
	SourceRedis Source = "redis" // what was pushed to all nodes; Store is StoreRedis
)

// Reload configures the source of the configuration.
type Reload struct {
	Source Source
	Keep   string // path for a copy of the pushed configuration; empty for none
}

// reload compiles the reload section.
func (r *loader) reload(f *reloadForm, store string) Reload {
	made := Reload{Source(f.Source), r.writes(&f.Keep)}
	switch {
	case made.Source == SourceRedis && Store(store) != StoreRedis && r.Valid(&f.Source):
		r.Wrong(&f.Source, "there is no Redis to load it from", "write store: redis, or source: file")
	case made.Source == SourceFile && f.Keep != "":
		r.Wrong(&f.Keep, "only what is pushed is kept", "write source: redis beside it, or leave it out")
	}
	return made
}
