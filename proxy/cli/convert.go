package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/convert"
)

type convertCommand struct {
	From string `arg:"" enum:"nginx,ingress-nginx,ratelimit" help:"The program whose configuration it is: nginx, ingress-nginx, or ratelimit, which is Envoy's."`
	File string `arg:"" help:"Its configuration; - is standard input."`
}

// Run prints the limits of the file as a configuration of Weir. On standard error it says how
// many comments there are to read, which access control is lost, and what weir check would
// report; after the latter two the exit code is 1.
func (c convertCommand) Run(w Env) error {
	in, name := w.stdin(), "standard input"
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close()
		in, name = f, c.File
	}
	return c.convert(name, in, w)
}

// convert prints the result for a file.
func (c convertCommand) convert(name string, in io.Reader, w Env) error {
	result, err := convert.Convert(c.From, name, in)
	if err != nil {
		return err
	}
	if _, err := w.Stdout.Write(result.YAML); err != nil {
		return err
	}
	if n := len(result.Notes); n > 0 {
		fmt.Fprintf(w.Stderr, "%s: %d comments say what is different and what is not carried over\n", name, n)
	}
	_, err = config.Parse("weir.yaml", result.YAML, os.LookupEnv)
	err = reportProblems(w.Stderr, err)
	if lost := result.Lost(); len(lost) > 0 {
		for _, text := range lost {
			fmt.Fprintln(w.Stderr, text)
		}
		fmt.Fprintf(w.Stderr,
			"%s: access control is lost: the configuration is written, and routes that were protected answer 403\n", name)
		return errors.Join(errReported, err)
	}
	return err
}
