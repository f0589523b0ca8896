package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
)

type pushCommand struct {
	File   string `arg:"" help:"The file to serve; included files and list files are sent with it."`
	DryRun bool   `help:"Ask all nodes whether they can serve the file, and change nothing."`
	Author string `help:"Author, for the history; default: the name of the token, or user and host name."`
	answerFlags
}

// Run makes all nodes serve a file, or none, and prints the changes.
func (c pushCommand) Run(ctx context.Context, w Env) error {
	b, err := bundle.Pack(c.File)
	if err != nil {
		return err
	}
	done, err := c.push(ctx, w.Stderr, "/push", admin.Push{Bundle: b, Author: c.Author, Sender: sender(), DryRun: c.DryRun})
	if err != nil || c.JSON {
		return errors.Join(printJSON(w, done, err), refusedDryRun(done))
	}
	return printPushed(w.Stdout, done)
}

// awaitedInterval is how often it is asked for which nodes a push waits.
const awaitedInterval = time.Second

// push sends a push or a rollback, and returns what came of it. If that takes long, it writes meanwhile for which nodes
// it waits.
func (a adminFlags) push(ctx context.Context, out io.Writer, path string, body any) (admin.Pushed, error) {
	asking, answered := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		var nodes admin.Nodes
		for len(nodes.Awaited) == 0 {
			select {
			case <-time.After(awaitedInterval):
				nodes, _ = admin.Get[admin.Nodes](asking, a.client(), "/nodes") // without it nothing is told
			case <-asking.Done():
				return
			}
		}
		fmt.Fprintf(out, "waiting for the answer of %s; a node that is not heard of for 10 s counts as lost, and is not waited for\n", strings.Join(nodes.Awaited, ", "))
	})
	defer telling.Wait()
	defer answered()
	return admin.Post[admin.Pushed](ctx, a.client(), path, body)
}

// refusedDryRun returns errReported if a node refused a dry run.
func refusedDryRun(p admin.Pushed) error {
	if p.DryRun && slices.ContainsFunc(p.Nodes, func(n view.NodeAnswer) bool { return n.Said != "ok" }) {
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

type rollbackCommand struct {
	Generation int64  `arg:"" optional:"" help:"The generation to restore, as listed by weir history; default: the newest one that differs from what is served and from what was rolled back."`
	DryRun     bool   `help:"Print what would change, ask all nodes whether they can serve it, and change nothing."`
	Yes        bool   `short:"y" help:"Do not ask on a terminal."`
	Author     string `help:"Author, for the history; default: the name of the token, or user and host name."`
	JSON       bool   `name:"json" help:"Print JSON, and do not ask."`
	adminFlags
}

// errNotConfirmed reports that the operator did not confirm.
var errNotConfirmed = errors.New("nothing was changed")

// Run makes all nodes serve the configuration of an earlier generation, as a
// new generation.
func (c rollbackCommand) Run(ctx context.Context, w Env) error {
	r := admin.Rollback{Generation: c.Generation, Author: c.Author, Sender: sender(), DryRun: c.DryRun}
	if c.asks(w) {
		if err := c.confirm(ctx, w, &r); err != nil {
			return err
		}
	}
	done, err := c.push(ctx, w.Stderr, "/rollback", r)
	if err != nil || c.JSON {
		return errors.Join(printJSON(w, done, err), refusedDryRun(done))
	}
	fmt.Fprintf(w.Stdout, "%sback to generation %d\n", map[bool]string{true: "would go "}[c.DryRun], done.From)
	return printPushed(w.Stdout, done)
}

// asks reports whether the operator is to be asked: a person at a terminal is.
func (c rollbackCommand) asks(w Env) bool {
	return !c.Yes && !c.JSON && !c.DryRun && isTerminal(w.Stdin) && isTerminal(w.Stdout)
}

// confirm shows what would change, and asks. It sets the generation in r, so that what was shown is done.
func (c rollbackCommand) confirm(ctx context.Context, w Env, r *admin.Rollback) error {
	r.DryRun = true
	would, err := c.push(ctx, w.Stderr, "/rollback", *r)
	if err != nil {
		return err
	}
	if err := printPushed(w.Stdout, would); err != nil || len(would.Nodes) == 0 {
		return errors.Join(err, errNotConfirmed)
	}
	fmt.Fprintf(w.Stdout, "Go back to generation %d on all nodes? [y/N] ", would.From)
	typed, _ := bufio.NewReader(w.Stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(typed)); answer != "y" && answer != "yes" {
		return errNotConfirmed
	}
	r.Generation, r.DryRun = would.From, false
	return nil
}

type historyCommand struct {
	Generation int64 `arg:"" optional:"" help:"Show the changes of this generation."`
	answerFlags
}

// Run lists the last 20 pushes, newest first, or shows what one changed.
func (c historyCommand) Run(ctx context.Context, w Env) error {
	if c.Generation != 0 {
		shown, err := admin.Get[admin.Diff](ctx, c.client(), fmt.Sprint("/history/", c.Generation))
		if err != nil || c.JSON {
			return printJSON(w, shown, err)
		}
		fmt.Fprint(w.Stdout, historyRow(shown.Entry))
		if shown.Oldest {
			fmt.Fprintln(w.Stdout, "the oldest push that is kept; what was served before it is not known, so this is all of it")
		}
		for _, change := range shown.Changes {
			fmt.Fprintln(w.Stdout, change)
		}
		_, err = fmt.Fprint(w.Stdout, shown.Diff)
		return err
	}
	all, err := admin.Get[admin.History](ctx, c.client(), "/history")
	if err != nil || c.JSON {
		return printJSON(w, all, err)
	}
	for _, e := range all.History {
		fmt.Fprint(w.Stdout, historyRow(e))
	}
	if len(all.History) == 0 {
		fmt.Fprintln(w.Stdout, "nothing was pushed yet")
	}
	return nil
}

// historyRow returns one line of the history.
func historyRow(e view.Entry) string {
	back := ""
	if e.From != 0 {
		back = fmt.Sprintf(", back to generation %d", e.From)
	}
	return fmt.Sprintf("%d  %s  %s  %.12s%s\n", e.Generation, e.At.Format(time.RFC3339), e.Author, e.Hash, back)
}
