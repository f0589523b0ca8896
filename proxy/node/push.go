package node

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// pushAPI implements the operations on the configuration of all nodes: push, rollback and history.
type pushAPI struct{ *Node }

// Push implements admin.Cluster.
func (a pushAPI) Push(ctx context.Context, p admin.Push) (admin.Pushed, error) {
	q := cluster.Push{Bundle: p.Bundle, Author: authorOf(ctx, p.Author, p.Sender)}
	if p.DryRun {
		return a.try(ctx, q)
	}
	return a.push(ctx, q)
}

// authorOf returns the author of a push: the one that is named, or else the operator, if the token has a name, or
// else the sender.
func authorOf(ctx context.Context, named, sender string) string {
	who := admin.OperatorOf(ctx).Name
	if who == admin.Local || who == admin.Admin {
		return cmp.Or(named, sender, who)
	}
	return cmp.Or(named, who)
}

// try asks all nodes whether they could serve p.
func (a pushAPI) try(ctx context.Context, p cluster.Push) (admin.Pushed, error) {
	done, err := a.prepare(&p)
	if err != nil {
		return admin.Pushed{}, err
	}
	done.DryRun = true
	if a.isServed(p.Bundle) {
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
	if a.isServed(p.Bundle) {
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
	seal := a.source.seal()
	p.Bundle = seal.Sign(p.Bundle)
	c, err := bundle.Unpack(a.source.machine, p.Bundle)
	if err == nil && len(c.Bare) > 0 {
		err = config.Problems(c.Bare)
	}
	if err != nil {
		a.logRefused("push refused", *p, err)
		return admin.Pushed{}, err
	}
	number, now := a.proxy.Serving()
	done := admin.Pushed{Generation: number, Hash: c.Hash, From: p.From, Changes: config.Compare(now, c)}
	for _, w := range c.Warnings {
		done.Warnings = append(done.Warnings, w.String())
	}
	if files := seal.Exposed(c); len(files) > 0 {
		done.Warnings = append(done.Warnings, "whoever reads Redis can read the values of sensitive keys in "+strings.Join(files, ", ")+
			"; write privacy.hash_secret into the file of each node")
	}
	p.Config = c
	return done, nil
}

// isServed reports whether all nodes already serve b, under whatever name of its file.
func (a pushAPI) isServed(b bundle.Bundle) bool {
	served := a.source.served()
	return served != nil && served.Hash() == b.Hash()
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
	n.reloads.recordPush(err)
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
