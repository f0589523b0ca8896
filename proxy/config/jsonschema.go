package config

import (
	"bytes"
	_ "embed"
)

//go:generate go test -run TestSchema_HasNotDrifted -update .

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema of a config file, for editors. It is a copy. What
// Load accepts is valid under it; what is valid may still be refused.
func Schema() []byte { return bytes.Clone(schema) }
