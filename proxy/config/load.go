package config

// Load reads the file at path and what it includes, with the environment of
// the process. It returns a whole *Config or Problems.
func Load(path string) (*Config, error) {
	return nil, Problems{{Position: Position{File: path}, What: "cannot be read"}}
}
