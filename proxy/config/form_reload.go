package config

// reloadForm selects the source of the configuration.
type reloadForm struct {
	// Source of routes, limits and everything else that can be reloaded: file is this file; redis is the configuration that weir push sends to all Weirs, and this file until something is pushed.
	Source string `yaml:"source" jsonschema:"default=file,enum=file,enum=redis"`
	// Keep is a file, relative to this one, for a copy of the pushed configuration, which is used at a start while Redis is unreachable. No copy is kept when not given.
	Keep string `yaml:"keep" jsonschema:"default="`
}
