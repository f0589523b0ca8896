package cli

import (
	"context"

	"github.com/weir-proxy/weir/proxy/admin"
)

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
