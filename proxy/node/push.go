package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// pushAPI implements the operations on the configuration of all nodes: push, rollback and history.
type pushAPI struct{ *Node }

// Push implements admin.Cluster.
func (a pushAPI) Push(ctx context.Context, p admin.Push) (admin.Pushed, error) {
	q := cluster.Push{Bundle: p.Bundle, Author: p.Author}
	if p.DryRun {
		return a.try(ctx, q)
	}
	return a.push(ctx, q)
}

// try asks all nodes whether they could serve p.
func (a pushAPI) try(ctx context.Context, p cluster.Push) (admin.Pushed, error) {
	done, err := a.prepare(&p)
	if err != nil {
		return admin.Pushed{}, err
	}
	done.DryRun = true
	if a.isServed(p.Config) {
		return done, nil
	}
	answers, err := a.store.cluster.Try(ctx, p)
	done.Nodes = nodeAnswers(answers)
	return done, problemOf(err)
}

func (a pushAPI) push(ctx context.Context, p cluster.Push) (admin.Pushed, error) {
	done, err := a.prepare(&p)
	if err != nil {
		return admin.Pushed{}, err
	}
	if a.isServed(p.Config) {
		return a.republish(ctx, done)
	}
	outcome, err := a.store.cluster.Push(ctx, p)
	if err != nil {
		a.logRefused("push refused", p, err)
		return admin.Pushed{}, problemOf(err)
	}
	done.Generation, done.Hash, done.Nodes, done.Changed = outcome.Generation, outcome.Hash, nodeAnswers(outcome.Nodes), true
	a.log.Info().Str("author", p.Author).Int64("generation", done.Generation).Str("hash", done.Hash).Int64("from", p.From).Msg("pushed")
	return done, nil
}

// prepare loads the pushed configuration into p, and compares it with the current one.
func (a pushAPI) prepare(p *cluster.Push) (admin.Pushed, error) {
	bundle, c, err := a.unpack(p.Bundle)
	if err == nil && len(c.Bare) > 0 {
		err = config.Problems(c.Bare)
	}
	if err != nil {
		a.logRefused("push refused", *p, err)
		return admin.Pushed{}, err
	}
	number, now := a.proxy.Serving()
	done := admin.Pushed{Generation: number, Hash: c.Hash, Changes: config.Compare(now, c)}
	for _, w := range c.Warnings {
		done.Warnings = append(done.Warnings, w.String())
	}
	p.Bundle, p.Config = bundle, c
	return done, nil
}

// isServed reports whether all nodes already serve c.
func (a pushAPI) isServed(c *config.Config) bool {
	b := a.source.served()
	return b != nil && b.Hash() == c.Hash
}

// republish handles a push of the current configuration. If Redis has lost it, it is published again,
// so that new nodes find it; otherwise nothing is done.
func (a pushAPI) republish(ctx context.Context, done admin.Pushed) (admin.Pushed, error) {
	var err error
	if done.Restored, err = a.store.cluster.Restore(ctx); err != nil {
		return admin.Pushed{}, err
	}
	if done.Restored {
		a.log.Warn().Int64("generation", done.Generation).Msg("published again; redis had lost it")
	}
	return done, nil
}

// unpack returns the configuration that would be served for b, and the bundle in the form in which
// it may be stored where others can read it: with the values of its lists and overrides hashed.
func (n *Node) unpack(b bundle.Bundle) (bundle.Bundle, *config.Config, error) {
	c, err := bundle.Unpack(n.source.machine, b)
	if err != nil || !n.source.pushable() {
		return b, c, err
	}
	hashed, err := b.Conceal(c, n.source.served())
	if err != nil {
		return b, nil, err
	}
	c, err = bundle.Unpack(n.source.machine, hashed)
	return hashed, c, err
}

// logRefused logs a push that was refused.
func (a pushAPI) logRefused(message string, p cluster.Push, err error) {
	a.log.Warn().Str("author", p.Author).Str("hash", p.Bundle.Hash()).Int64("from", p.From).Err(err).Msg(message)
}

// problemOf converts an error of the cluster to a problem for operators.
func problemOf(err error) error {
	var refused *cluster.RefusedError
	var other *cluster.PushInProgressError
	switch {
	case errors.As(err, &refused):
		return &admin.Problem{Status: http.StatusConflict, Detail: err.Error(), Nodes: nodeAnswers(refused.Answers)}
	case errors.As(err, &other):
		return &admin.Problem{Status: http.StatusConflict, Detail: err.Error(), Author: other.Author, Node: other.Node}
	case errors.Is(err, cluster.ErrOvertaken):
		return &admin.Problem{Status: http.StatusConflict, Detail: err.Error()}
	}
	return err
}

// Rollback implements admin.Cluster.
func (a pushAPI) Rollback(ctx context.Context, r admin.Rollback) (admin.Pushed, error) {
	entries, err := a.store.cluster.History(ctx)
	if err != nil {
		return admin.Pushed{}, err
	}
	i := 1
	if r.Generation != 0 {
		i = slices.IndexFunc(entries, func(e cluster.Entry) bool { return e.Generation == r.Generation })
	}
	if i < 0 || i >= len(entries) {
		return admin.Pushed{}, &admin.Problem{Status: http.StatusNotFound, Detail: "there is no such generation in the history; weir history lists them"}
	}
	return a.push(ctx, cluster.Push{Bundle: entries[i].Bundle, Author: r.Author, From: entries[i].Generation})
}

// History implements admin.Cluster.
func (a pushAPI) History(ctx context.Context) (admin.History, error) {
	entries, err := a.store.cluster.History(ctx)
	return history(entries), err
}

// Diff implements admin.Cluster. It compares the files of a generation with those of the one pushed
// before it.
func (a pushAPI) Diff(ctx context.Context, generation int64) (admin.Diff, error) {
	entries, err := a.store.cluster.History(ctx)
	if err != nil {
		return admin.Diff{}, err
	}
	i := slices.IndexFunc(entries, func(e cluster.Entry) bool { return e.Generation == generation })
	if i < 0 {
		return admin.Diff{}, &admin.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("generation %d is not in the history; weir history lists what is", generation)}
	}
	before := cluster.Entry{}
	if i+1 < len(entries) {
		before = entries[i+1]
	}
	return admin.Diff{Entry: entry(entries[i]), Diff: compareFiles(before.Bundle, entries[i].Bundle)}, nil
}

// compareFiles returns the differences between the files of two bundles.
func compareFiles(was, is bundle.Bundle) string {
	var names []string
	for _, b := range []bundle.Bundle{was, is} {
		for name := range b.Files {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var all bytes.Buffer
	for _, name := range slices.Compact(names) {
		all.Write(diff.Diff("a/"+name, []byte(was.Files[name]), "b/"+name, []byte(is.Files[name])))
	}
	return all.String()
}

// follow serves pushed configurations, until ctx is done.
func (n *Node) follow(ctx context.Context) {
	if n.store.cluster == nil || !n.source.pushable() {
		return
	}
	n.store.cluster.Follow(ctx, &cluster.Follower{
		Prepare: func(ctx context.Context, b bundle.Bundle) (cluster.Prepared, error) {
			c, err := bundle.Unpack(n.source.machine, b)
			if err != nil {
				return nil, err
			}
			return n.proxy.Prepare(ctx, c)
		},
		Applied: n.pushApplied,
	})
}

// pushApplied records the result of a push on this node.
func (n *Node) pushApplied(e cluster.Entry, err error) {
	n.reloads.record(err)
	n.publishReload(e.Generation, e.Hash, err)
	if err != nil {
		n.log.Error().Err(err).Int64("generation", e.Generation).Msg("cannot serve pushed config")
		return
	}
	n.source.set(e.Bundle)
	n.log.Info().Int64("generation", e.Generation).Str("hash", e.Hash).Str("author", e.Author).Msg("serving pushed config")
	if err := n.source.keep(e); err != nil {
		n.log.Warn().Err(err).Msg("cannot write reload.keep")
	}
}
