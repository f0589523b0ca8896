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
	// Author is for the history. If it is empty, it is the name of the operator's token or, if that has none,
	// Sender, the user and host that send the push.
	Author string `json:"author"`
	Sender string `json:"sender,omitempty"`
	DryRun bool   `json:"dry_run"` // ask all nodes, but change nothing
}

// PushFile returns a push of one file with that text.
func PushFile(text, author string) Push {
	return Push{Bundle: bundle.Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": text}}, Author: author}
}

// A Rollback restores an earlier generation.
type Rollback struct {
	// Generation is 0 for the newest one that differs from what is served and from what was rolled back.
	Generation int64  `json:"generation"`
	Author     string `json:"author"` // as in a Push
	Sender     string `json:"sender,omitempty"`
	DryRun     bool   `json:"dry_run,omitempty"` // ask all nodes, but change nothing
}
