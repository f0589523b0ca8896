package admin

import (
	"context"

	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// A Cluster changes the configuration of all nodes. Its errors may be Problems.
type Cluster interface {
	Push(ctx context.Context, p Push) (Pushed, error)
	Rollback(ctx context.Context, r Rollback) (Pushed, error)
	History(ctx context.Context) (History, error)
	// Diff returns the changes of a generation of the history.
	Diff(ctx context.Context, generation int64) (Diff, error)
}

// A Push is a configuration for all nodes.
type Push struct {
	Bundle bundle.Bundle `json:"bundle"`
	Author string        `json:"author"`
	DryRun bool          `json:"dry_run"` // ask all nodes, but change nothing
}

// A Rollback restores an earlier generation.
type Rollback struct {
	Generation int64  `json:"generation"` // 0 means the previous one
	Author     string `json:"author"`
}
