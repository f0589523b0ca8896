package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weir-proxy/weir/proxy/admin"
)

type pushCommand struct {
	adminFlags
	File   string `arg:"" help:"The file to serve; included files and list files are sent with it."`
	DryRun bool   `help:"Ask all nodes whether they can serve the file, and change nothing."`
	Author string `help:"Author, for the history; default: the name of the token, or user and host name."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

// Run makes all nodes serve a file, or none, and prints the changes.
func (c pushCommand) Run(ctx context.Context, w Env) error {
	b, err := packBundle(c.File, w.Stdout)
	if err != nil {
		return err
	}
	done, err := c.client().Push(ctx, admin.Push{Bundle: b, Author: c.Author, Sender: sender(), DryRun: c.DryRun})
	if err != nil || c.JSON {
		return errors.Join(printJSON(w, done, err), refusedDryRun(done))
	}
	return printPushed(w.Stdout, done)
}

// refusedDryRun returns errReported if a node refused a dry run.
func refusedDryRun(p admin.Pushed) error {
	if p.DryRun && slices.ContainsFunc(p.Nodes, func(n admin.NodeAnswer) bool { return n.Said != "ok" }) {
		return errReported
	}
	return nil
}

// printPushed prints the result of a push, and last its warnings, where they are read. It returns errReported if a
// node refused a dry run.
func printPushed(out io.Writer, p admin.Pushed) error {
	for _, change := range p.Changes {
		fmt.Fprintln(out, change)
	}
	unable := printUnanswered(out, p.Nodes)
	switch {
	case p.Restored:
		fmt.Fprintf(out, "generation %d is published again; redis had lost it\n", p.Generation)
	case len(p.Nodes) == 0:
		fmt.Fprintf(out, "generation %d is this already\n", p.Generation)
	case p.DryRun && unable > 0:
		fmt.Fprintf(out, "%d of %d nodes could not serve this\n", unable, len(p.Nodes))
	case p.DryRun:
		fmt.Fprintf(out, "%[1]d of %[1]d nodes could serve this; nothing has changed\n", len(p.Nodes))
	default:
		fmt.Fprintf(out, "generation %d is served by %d of %d nodes\n", p.Generation, len(p.Nodes)-unable, len(p.Nodes))
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(out, "%s (warning)\n", warning)
	}
	return refusedDryRun(p)
}
