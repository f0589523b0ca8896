package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

type historyCommand struct {
	adminFlags
	Generation int64 `arg:"" optional:"" help:"Show the changes of this generation."`
	JSON       bool  `name:"json" help:"Print JSON."`
}

// Run lists the last 20 pushes, newest first, or shows what one changed.
func (c historyCommand) Run(ctx context.Context, w Env) error {
	if c.Generation != 0 {
		shown, err := c.client().Diff(ctx, c.Generation)
		if err != nil || c.JSON {
			return printJSON(w, shown, err)
		}
		fmt.Fprint(w.Stdout, historyRow(shown.Entry))
		for _, change := range shown.Changes {
			fmt.Fprintln(w.Stdout, change)
		}
		_, err = fmt.Fprint(w.Stdout, shown.Diff)
		return err
	}
	all, err := c.client().History(ctx)
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
func historyRow(e admin.Entry) string {
	back := ""
	if e.From != 0 {
		back = fmt.Sprintf(", back to generation %d", e.From)
	}
	return fmt.Sprintf("%d  %s  %s  %.12s%s\n", e.Generation, e.At.Format(time.RFC3339), e.Author, e.Hash, back)
}
