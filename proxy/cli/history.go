package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-proxy/weir/proxy/cluster"
)

type historyCommand struct {
	running
	Generation int64 `arg:"" optional:"" help:"Show what this generation changed in the files."`
}

// Run lists the last 20 pushes, the last first, or shows what one changed.
func (c historyCommand) Run(ctx context.Context, w Env) error {
	if c.Generation != 0 {
		var shown struct {
			cluster.Entry
			Diff string
		}
		if err := c.ask(ctx, w.Stdout, http.MethodGet, fmt.Sprintf("/api/v1/history/%d", c.Generation), nil, &shown); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w.Stdout, "%s%s", row(shown.Entry), shown.Diff)
		return err
	}
	var all struct{ History []cluster.Entry }
	if err := c.ask(ctx, w.Stdout, http.MethodGet, "/api/v1/history", nil, &all); err != nil {
		return err
	}
	for _, e := range all.History {
		fmt.Fprint(w.Stdout, row(e))
	}
	if len(all.History) == 0 {
		fmt.Fprintln(w.Stdout, "nothing was pushed yet")
	}
	return nil
}

// row is one line of the history.
func row(e cluster.Entry) string {
	back := ""
	if e.From != 0 {
		back = fmt.Sprintf(", back to generation %d", e.From)
	}
	return fmt.Sprintf("%d  %s  %s  %.12s%s\n", e.Generation, e.At.Format(time.RFC3339), e.Author, e.Hash, back)
}
