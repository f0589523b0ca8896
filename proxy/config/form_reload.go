package config

// reloadForm says where the configuration comes from.
type reloadForm struct {
	// Source of routes, limits and all else that a running Weir can change: this file, or redis, for what weir push gives to all Weirs at once; until something is pushed, this file.
	Source string `yaml:"source" jsonschema:"default=file,enum=file,enum=redis"`
	// Keep is a file, relative to this one, in which Weir keeps what was pushed, for a start while Redis is away. Nothing is kept when not given.
	Keep string `yaml:"keep" jsonschema:"default="`
}
