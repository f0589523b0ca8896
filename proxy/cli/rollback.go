package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/weir-proxy/weir/proxy/admin"
)

type rollbackCommand struct {
	adminFlags
	Generation int64  `arg:"" optional:"" help:"The generation to restore, as listed by weir history; default: the newest one that differs from what is served and from what was rolled back."`
	DryRun     bool   `help:"Print what would change, ask all nodes whether they can serve it, and change nothing."`
	Yes        bool   `short:"y" help:"Do not ask on a terminal."`
	Author     string `help:"Author, for the history; default: the name of the token, or user and host name."`
	JSON       bool   `name:"json" help:"Print JSON, and do not ask."`
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
	done, err := c.client().Rollback(ctx, r)
	if err != nil || c.JSON {
		return errors.Join(printJSON(w, done, err), refusedDryRun(done))
	}
	fmt.Fprintf(w.Stdout, "back to generation %d\n", done.From)
	return printPushed(w.Stdout, done)
}

// asks reports whether the operator is to be asked: a person at a terminal is.
func (c rollbackCommand) asks(w Env) bool {
	return !c.Yes && !c.JSON && !c.DryRun && (w.Stdin != nil || isTerminal(os.Stdin)) && isTerminal(w.Stdout)
}

// confirm shows what would change, and asks. It sets the generation in r, so that what was shown is done.
func (c rollbackCommand) confirm(ctx context.Context, w Env, r *admin.Rollback) error {
	r.DryRun = true
	would, err := c.client().Rollback(ctx, *r)
	if err != nil {
		return err
	}
	if err := printPushed(w.Stdout, would); err != nil || len(would.Nodes) == 0 {
		return errors.Join(err, errNotConfirmed)
	}
	fmt.Fprintf(w.Stdout, "Go back to generation %d on all nodes? [y/N] ", would.From)
	typed, _ := bufio.NewReader(w.stdin()).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(typed)); answer != "y" && answer != "yes" {
		return errNotConfirmed
	}
	r.Generation, r.DryRun = would.From, false
	return nil
}
