package config

// A Source is where a configuration comes from.
type Source string

// The sources.
const (
	SourceFile  Source = "file"  // the file that Weir was started with
	SourceRedis Source = "redis" // what was pushed to all nodes; Store is StoreRedis
)

// Reload says where the configuration comes from.
type Reload struct {
	Source Source
	Keep   string // path of the file in which what was pushed is kept; empty for none
}

// reload checks that the source can be one.
func (r *loader) reload(f *reloadForm, store string) Reload {
	made := Reload{Source(f.Source), r.relative(f.Keep)}
	switch {
	case made.Source == SourceRedis && Store(store) != StoreRedis && r.ok(&f.Source):
		r.wrong(&f.Source, "there is no Redis to load it from", "write store: redis, or source: file")
	case made.Source == SourceFile && f.Keep != "":
		r.wrong(&f.Keep, "only what is pushed is kept", "write source: redis beside it, or leave it out")
	}
	return made
}
