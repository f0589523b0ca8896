package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
	return c.finish(w, done, err)
}

// finish prints the result of a push or a rollback. It returns errReported if a node refused a dry run.
func (a answerFlags) finish(w Env, done admin.Pushed, err error) error {
	if err != nil || a.JSON {
		err = printJSON(w, done, err)
	} else {
		printPushed(w.Stdout, done)
	}
	if done.DryRun && len(view.NotOK(done.Nodes)) > 0 {
		return errReported
	}
	return err
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

// printPushed prints what came of a push, then what it changes, and last its warnings, where they are read.
func printPushed(out io.Writer, p admin.Pushed) {
	if p.From != 0 {
		fmt.Fprintf(out, "%sback to generation %d, which was served %s\n", map[bool]string{true: "would go "}[p.DryRun], p.From, p.Served)
	}
	all := fmt.Sprint("weir history ", p.Generation)
	able := len(p.Nodes) - len(view.NotOK(p.Nodes))
	switch {
	case p.Restored:
		fmt.Fprintf(out, "generation %d is published again; redis had lost it\n", p.Generation)
	case len(p.Nodes) == 0:
		fmt.Fprintf(out, "generation %d is this already; nothing was pushed, and nothing has changed\n", p.Generation)
	case p.DryRun:
		all = "--json"
		fmt.Fprintf(out, "%d of %d nodes could serve this; nothing has changed\n", able, len(p.Nodes))
	default:
		fmt.Fprintf(out, "generation %d is served by %d of %d nodes\n", p.Generation, able, len(p.Nodes))
	}
	printUnanswered(out, p.Nodes)
	for i, change := range p.Changes {
		if i == maxChanges {
			fmt.Fprintf(out, "and %s; %s lists all\n", plural(len(p.Changes)-i, "other change"), all)
			break
		}
		fmt.Fprintln(out, change)
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(out, "%s (warning)\n", warning)
	}
}

// maxChanges is how many changes a push prints, so that its warnings are on the same screen as its result.
const maxChanges = 10

type rollbackCommand struct {
	Generation int64  `arg:"" optional:"" help:"The generation to restore, as listed by weir history; default: the newest one that differs from what is served and from what was rolled back."`
	DryRun     bool   `help:"Print what would change, ask all nodes whether they can serve it, and change nothing."`
	Yes        bool   `short:"y" help:"Do not ask on a terminal; --json does not ask either."`
	Author     string `help:"Author, for the history; default: the name of the token, or user and host name."`
	answerFlags
}

// errNotConfirmed reports that the operator did not confirm.
var errNotConfirmed = errors.New("nothing was changed")

// Run makes all nodes serve the configuration of an earlier generation, as a
// new generation.
func (c rollbackCommand) Run(ctx context.Context, w Env) error {
	r := admin.Rollback{Generation: c.Generation, Author: c.Author, Sender: sender(), DryRun: c.DryRun}
	if err := c.confirm(ctx, w, &r); err != nil {
		return err
	}
	done, err := c.push(ctx, w.Stderr, "/rollback", r)
	return c.finish(w, done, err)
}

// confirm shows a person at a terminal what would change, and asks. It sets the generation in r, so that what was shown
// is done.
func (c rollbackCommand) confirm(ctx context.Context, w Env, r *admin.Rollback) error {
	if c.Yes || c.JSON || c.DryRun || !isTerminal(w.Stdin) || !isTerminal(w.Stdout) {
		return nil
	}
	r.DryRun = true
	would, err := c.push(ctx, w.Stderr, "/rollback", *r)
	if err != nil {
		return err
	}
	if err := c.finish(w, would, nil); err != nil || len(would.Nodes) == 0 {
		return errors.Join(err, errNotConfirmed)
	}
	fmt.Fprintf(w.Stdout, "Go back to generation %d, which was served %s, on all nodes? [y/N] ", would.From, would.Served)
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
		_ = historyTable(shown.Entry).printAll(w.Stdout)
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
	return historyTable(all.History...).printAll(w.Stdout)
}

// historyTable lists pushes.
func historyTable(entries ...view.Entry) textTable {
	t := textTable{columns: []string{"GENERATION", "TIME", "AUTHOR", "HASH", "BACK TO"}, empty: "nothing was pushed yet"}
	for _, e := range entries {
		back := "-"
		if e.From != 0 {
			back = fmt.Sprint(e.From)
		}
		t.add(textRow{}, e.Generation, e.At.Format(time.RFC3339), printable(e.Author), fmt.Sprintf("%.12s", e.Hash), back)
	}
	return t
}
