package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
)

type checkCommand struct {
	tlsFlags
	File      string `arg:"" help:"The file to check."`
	Effective bool   `help:"Print the configuration with all defaults filled in, secrets masked." xor:"what"`
	Against   string `help:"Compare with the configuration of a running weir, and print what would change." placeholder:"HOST:PORT" xor:"what"`
	Token     string `env:"WEIR_ADMIN_TOKEN" help:"Bearer token for its admin listener."`
}

// Run prints all problems of the file, one per line, or that there are none.
// Warnings and notes are printed too, but do not change the exit code.
func (c checkCommand) Run(ctx context.Context, w Env) error {
	if c.Against != "" {
		return c.compare(ctx, w.Stdout)
	}
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
	problems, outdated := read.CheckFiles(time.Now())
	if len(problems) > 0 {
		return reportProblems(w.Stdout, problems)
	}
	for _, warning := range slices.Concat(read.Warnings, outdated) {
		fmt.Fprintf(w.Stdout, "%s (warning)\n", warning)
	}
	if read.Reload.Source == config.SourceRedis {
		if _, err := bundle.Pack(c.File); err != nil {
			fmt.Fprintf(w.Stdout, "%s: %v (warning)\n", c.File, err)
		}
	}
	for _, remark := range read.Remarks {
		fmt.Fprintf(w.Stdout, "%s (note)\n", remark)
	}
	for _, note := range read.Notes() {
		fmt.Fprintf(w.Stdout, "%s: %s (note)\n", c.File, note)
	}
	fmt.Fprintf(w.Stdout, "%s: ok\n", c.File)
	return nil
}

// load loads a configuration; problems are printed to out, one per line.
func load(path string, out io.Writer) (*config.Config, error) {
	c, err := config.Load(path)
	return c, reportProblems(out, err)
}

// reportProblems prints config.Problems to out, one per line, and returns errReported;
// other errors it returns unchanged.
func reportProblems(out io.Writer, err error) error {
	var problems config.Problems
	if !errors.As(err, &problems) {
		return err
	}
	for _, p := range problems {
		fmt.Fprintln(out, p)
	}
	return errReported
}
