package admin

import (
	"context"

	"github.com/weir-proxy/weir/proxy/config"
)

// A Cluster moves all nodes from one configuration to another. An error that is a
// Problem says its status itself.
type Cluster interface {
	Push(ctx context.Context, p Push) (Pushed, error)
	Rollback(ctx context.Context, r Rollback) (Pushed, error)
	History(ctx context.Context) (History, error)
	// Diff tells what a generation of the history changed.
	Diff(ctx context.Context, generation int64) (Diff, error)
}

// A Push is a configuration for all nodes.
type Push struct {
	Bundle config.Bundle `json:"bundle"`
	Author string        `json:"author"`
	DryRun bool          `json:"dry_run"` // ask all nodes, change nothing
}

// A Rollback is the way back to a generation.
type Rollback struct {
	Generation int64  `json:"generation"` // 0: the one before
	Author     string `json:"author"`
}
