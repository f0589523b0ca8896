package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/weir-proxy/weir/proxy/config"
)

type checkCommand struct {
	File      string `arg:"" help:"The file to check."`
	Effective bool   `help:"Print the configuration with all defaults filled in, secrets masked."`
}

// Run prints every problem of the file, one a line, or that there is none.
// Warnings are printed as well; they are no fault.
func (c checkCommand) Run(w World) error {
	read, err := load(c.File, w.Stdout)
	if err != nil {
		return err
	}
	if c.Effective {
		text, err := read.Effective()
		if err != nil {
			return fmt.Errorf("print effective config: %w", err)
		}
		_, err = w.Stdout.Write(text)
		return err
	}
	for _, warning := range read.Warnings {
		fmt.Fprintf(w.Stdout, "%s (warning)\n", warning)
	}
	fmt.Fprintf(w.Stdout, "%s: ok\n", c.File)
	return nil
}

// load reads a configuration; its problems are printed to out, one a line.
func load(path string, out io.Writer) (*config.Config, error) {
	c, err := config.Load(path)
	var problems config.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Fprintln(out, p)
		}
		return nil, errSaid
	}
	return c, err
}
