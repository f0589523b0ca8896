package cli

import "github.com/weir-proxy/weir/proxy/config"

type schemaCommand struct{}

// Run prints the JSON Schema of the configuration.
func (schemaCommand) Run(w Env) error {
	_, err := w.Stdout.Write(config.Schema())
	return err
}
