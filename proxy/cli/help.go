package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/alecthomas/kong"
)

type helpCommand struct {
	Command string `arg:"" optional:"" help:"The command; default: list all."`
}

// Run prints the help of a command, as --help does.
func (c helpCommand) Run(parser *kong.Kong, w Env) error {
	args := []string{"--help"}
	if names := commandNames(parser); c.Command != "" {
		if !slices.Contains(names, c.Command) {
			fmt.Fprintf(w.Stderr, "weir: there is no command %q; %sweir help lists the commands\n", c.Command, suggestCommand(c.Command, names))
			return errUsage
		}
		args = []string{c.Command, "--help"}
	}
	_, err := parser.Parse(args) // prints
	var parse *kong.ParseError
	if errors.As(err, &parse) { // parsing continues after the help and misses required arguments
		err = nil
	}
	return err
}
