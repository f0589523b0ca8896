package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/weir-proxy/weir/proxy/admin"
)

type pushCommand struct {
	adminFlags
	File   string `arg:"" help:"The file to serve; included files and list files are sent with it."`
	DryRun bool   `help:"Ask all nodes whether they can serve the file, and change nothing."`
	Author string `help:"Author, for the history; default: user and host name."`
}

// Run makes all nodes serve a file, or none, and prints the changes.
func (c pushCommand) Run(ctx context.Context, w Env) error {
	b, err := packBundle(c.File, w.Stdout)
	if err != nil {
		return err
	}
	done, err := c.client().Push(ctx, admin.Push{Bundle: b, Author: author(c.Author), DryRun: c.DryRun})
	if err != nil {
		return reportRefusal(w.Stdout, err)
	}
	return printPushed(w.Stdout, done)
}

// printPushed prints the result of a push. It returns errReported if a node refused a
// dry run.
func printPushed(out io.Writer, p admin.Pushed) error {
	for _, warning := range p.Warnings {
		fmt.Fprintf(out, "%s (warning)\n", warning)
	}
	for _, change := range p.Changes {
		fmt.Fprintln(out, change)
	}
	unable := 0
	for _, n := range p.Nodes {
		if n.Said != "ok" {
			unable++
			fmt.Fprintf(out, "%s: %s\n", n.Node, n.Said)
		}
	}
	switch {
	case p.Restored:
		fmt.Fprintf(out, "generation %d is published again; redis had lost it\n", p.Generation)
	case len(p.Nodes) == 0:
		fmt.Fprintf(out, "generation %d is this already\n", p.Generation)
	case p.DryRun && unable > 0:
		fmt.Fprintf(out, "%d of %d nodes could not serve this\n", unable, len(p.Nodes))
		return errReported
	case p.DryRun:
		fmt.Fprintf(out, "%[1]d of %[1]d nodes could serve this; nothing has changed\n", len(p.Nodes))
	default:
		fmt.Fprintf(out, "generation %d is served by %d of %d nodes\n", p.Generation, len(p.Nodes)-unable, len(p.Nodes))
	}
	return nil
}

type rollbackCommand struct {
	adminFlags
	Generation int64  `arg:"" optional:"" help:"The generation to restore, as listed by weir history; default: the previous one."`
	Author     string `help:"Author, for the history; default: user and host name."`
}

// Run makes all nodes serve the configuration of an earlier generation, as a
// new generation.
func (c rollbackCommand) Run(ctx context.Context, w Env) error {
	done, err := c.client().Rollback(ctx, admin.Rollback{Generation: c.Generation, Author: author(c.Author)})
	if err != nil {
		return reportRefusal(w.Stdout, err)
	}
	return printPushed(w.Stdout, done)
}
