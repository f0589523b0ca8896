package node

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
)

// pushAPI implements the operations on the configuration of all nodes: push, rollback and history. It records what
// operators change.
type pushAPI struct{ *Node }

// Push implements admin.Cluster. A dry run, and a push of what is served already, are not recorded.
func (a pushAPI) Push(ctx context.Context, p admin.Push) (admin.Pushed, error) {
	q, push := cluster.Push{Bundle: p.Bundle, Author: authorOf(ctx, p.Author, p.Sender)}, a.push
	if p.DryRun {
		push = a.try
	}
	done, err := push(ctx, q)
	err = whileAway(err, "nothing has changed, push again when it is back")
	if !p.DryRun && (done.Changed || done.Restored || err != nil) {
		a.record(ctx, configAudit("push", fmt.Sprintf("generation %d%s", done.Generation, byOther(ctx, q.Author)), err))
	}
	return done, err
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

// byOther names the author of a push, unless that is the operator, whom the audit trail names.
func byOther(ctx context.Context, author string) string {
	return map[bool]string{true: ", by " + author}[author != admin.OperatorOf(ctx).Name]
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
	done.Nodes, err = a.store.cluster.Try(ctx, p)
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
	if done.Generation, done.Nodes, err = a.store.cluster.Push(ctx, p); err != nil {
		a.logRefused("push refused", p, err)
		return admin.Pushed{}, problemOf(err)
	}
	done.Changed = true
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
	done := admin.Pushed{Generation: number, Hash: c.Hash, From: p.From, Changes: config.Compare(now, c), Warnings: admin.Texts(c.Warnings)}
	if files := seal.Exposed(c); len(files) > 0 {
		done.Warnings = append(done.Warnings, "whoever reads Redis can read the values of sensitive keys in "+strings.Join(files, ", ")+
			"; write privacy.hash_secret into the file of each node")
	}
	if err := config.Emptied(now, c); err != nil {
		done.Warnings = append(done.Warnings, err.Error())
	}
	if !slices.ContainsFunc(c.Limits(), func(l *config.Limit) bool { return l.Mode == config.Enforce }) {
		done.Warnings = append(done.Warnings, "no limit is enforced")
	}
	p.Config = c
	return done, nil
}

// isServed reports whether all nodes already serve b, under whatever name of its file.
func (a pushAPI) isServed(b bundle.Bundle) bool {
	served := a.source.bundle.Load()
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
	if refused, is := errors.AsType[*cluster.RefusedError](err); is {
		return &admin.Problem{Status: http.StatusConflict, Detail: err.Error(), Nodes: refused.Answers}
	}
	if other, is := errors.AsType[*cluster.PushInProgressError](err); is {
		return &admin.Problem{Status: http.StatusConflict, Detail: err.Error(), Author: other.Author, Node: other.Node}
	}
	if errors.Is(err, cluster.ErrOvertaken) {
		return &admin.Problem{Status: http.StatusConflict, Detail: err.Error()}
	}
	return err
}

// follow serves pushed configurations, until ctx is done.
func (n *Node) follow(ctx context.Context) {
	if !n.source.pushable() {
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
		Serve:   func(e cluster.Entry) { n.source.bundle.Store(new(e.Bundle)) }, // a reload that waits for it reads it
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
	n.log.Info().Int64("generation", e.Generation).Str("hash", e.Hash).Str("author", e.Author).Msg("serving pushed config")
	if err := n.source.keep(e); err != nil {
		n.log.Warn().Err(err).Msg("cannot write reload.keep")
	}
}

// Rollback implements admin.Cluster. A dry run, and a rollback to what is served already, are not recorded.
func (a pushAPI) Rollback(ctx context.Context, r admin.Rollback) (done admin.Pushed, err error) {
	push := a.push
	if r.DryRun {
		push = a.try
	}
	p, served, err := a.earlier(ctx, r)
	if err == nil {
		done, err = push(ctx, p)
		done.Served = served
	}
	err = whileAway(err, "nothing has changed, roll back again when it is back")
	if !r.DryRun && (done.Changed || err != nil) {
		a.record(ctx, configAudit("rollback", fmt.Sprintf("generation %d, back to %d%s", done.Generation, done.From, byOther(ctx, p.Author)), err))
	}
	return done, err
}

// earlier returns the push of the generation that r restores, and when that was served.
func (a pushAPI) earlier(ctx context.Context, r admin.Rollback) (p cluster.Push, served string, err error) {
	entries, err := a.store.cluster.History(ctx)
	if err != nil {
		return p, "", err
	}
	i := rollbackTo(entries)
	switch {
	case r.Generation != 0:
		if i = slices.IndexFunc(entries, func(e cluster.Entry) bool { return e.Generation == r.Generation }); i < 0 {
			return p, "", &admin.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("generation %d is not in the history of pushes; weir history lists those that are", r.Generation)}
		}
	case i < 0:
		return p, "", &admin.Problem{Status: http.StatusNotFound, Detail: "no earlier generation in the history differs from what is served and from what was rolled back; push a file, or name one that weir history lists"}
	}
	if err := entries[i].Unreadable; err != nil {
		return p, "", unreadable(entries[i], err)
	}
	until := time.Now()
	if i > 0 {
		until = entries[i-1].At
	}
	served = entries[i].At.UTC().Format(time.DateTime) + " UTC to " + until.UTC().Format(time.DateTime) + " UTC"
	return cluster.Push{Bundle: entries[i].Bundle, Author: authorOf(ctx, r.Author, r.Sender), From: entries[i].Generation}, served, nil
}

// rollbackTo returns the index of the entry to which a rollback leads by default, or -1: the newest one that is
// older than what is served, also if that was restored itself, and that has neither the contents of that nor
// those of a generation that was rolled back. entries begin with the newest.
func rollbackTo(entries []cluster.Entry) int {
	if len(entries) == 0 {
		return -1
	}
	rejected := []bundle.Bundle{entries[0].Bundle}
	for i, e := range entries[1:] {
		if entries[i].From != 0 { // the entry after e was a rollback
			rejected = append(rejected, e.Bundle)
		}
	}
	at := 0
	for entries[at].From != 0 {
		from := slices.IndexFunc(entries, func(e cluster.Entry) bool { return e.Generation == entries[at].From })
		if from <= at { // it is no longer in the history
			break
		}
		at = from
	}
	for i := at + 1; i < len(entries); i++ {
		if entries[i].Unreadable == nil && !slices.ContainsFunc(rejected, entries[i].Bundle.Same) {
			return i
		}
	}
	return -1
}

// History implements admin.Cluster.
func (a pushAPI) History(ctx context.Context) (admin.History, error) {
	entries, err := a.store.cluster.History(ctx)
	return history(entries), err
}

func history(entries []cluster.Entry) admin.History {
	return admin.History{History: view.Each(entries, func(e cluster.Entry) view.Entry { return e.Entry })}
}

// Diff implements admin.Cluster. It compares a generation with the one pushed before it.
func (a pushAPI) Diff(ctx context.Context, generation int64) (admin.Diff, error) {
	entries, err := a.store.cluster.History(ctx)
	if err != nil {
		return admin.Diff{}, err
	}
	i := slices.IndexFunc(entries, func(e cluster.Entry) bool { return e.Generation == generation })
	if i < 0 {
		return admin.Diff{}, &admin.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("generation %d is not in the history of pushes; weir history lists those that are", generation)}
	}
	once := make([]byte, 16)
	rand.Read(once)
	after, is, err := a.shown(entries[i], once)
	if err != nil {
		return admin.Diff{}, err
	}
	d := admin.Diff{Entry: entries[i].Entry, Oldest: i+1 == len(entries)}
	if d.Oldest { // what was served before is not known: all of it is told, as in the difference of the files
		parts := after.Parts(once)
		none := slices.Repeat(config.Parts{{}}, len(parts))
		d.Changes, d.Diff = config.CompareParts(none, parts), compareFiles(bundle.Bundle{}, is)
		return d, nil
	}
	before, was, err := a.shown(entries[i+1], once)
	if err == nil {
		d.Changes, d.Diff = config.Compare(before, after), compareFiles(was, is)
	}
	return d, err
}

// shown returns the configuration of an entry, and its files as they may be shown.
func (a pushAPI) shown(e cluster.Entry, once []byte) (*config.Config, bundle.Bundle, error) {
	c, err := (*config.Config)(nil), e.Unreadable
	if err == nil {
		c, err = bundle.Unpack(a.source.machine, e.Bundle)
	}
	if err != nil {
		return nil, bundle.Bundle{}, unreadable(e, err)
	}
	return c, e.Bundle.Shown(c, once), nil
}

// unreadable is the problem of an entry whose contents are not known here.
func unreadable(e cluster.Entry, err error) error {
	return &admin.Problem{Status: http.StatusConflict, Detail: fmt.Sprintf("generation %d cannot be read here: %v", e.Generation, err)}
}

// compareFiles returns the differences between the files of two bundles. The main files are compared with each
// other, whatever their names are.
func compareFiles(was, is bundle.Bundle) string {
	var all bytes.Buffer
	all.Write(diff.Diff("a/"+was.Main, []byte(was.Files[was.Main]), "b/"+is.Main, []byte(is.Files[is.Main])))
	before, after, names := was.Others(), is.Others(), is.Others()
	maps.Copy(names, before)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all.Write(diff.Diff("a/"+name, []byte(before[name]), "b/"+name, []byte(after[name])))
	}
	return all.String()
}

const (
	// diffTTL is how long the difference of two configurations is kept, and unknownTTL how long it is not
	// asked for again after a node did not answer.
	diffTTL    = 10 * time.Minute
	unknownTTL = 10 * time.Second
)

// configDiffs are the configurations that were compared last: pages that show them are refreshed every few seconds, and
// nodes are asked once.
type configDiffs struct {
	mu     sync.Mutex        // guards what follows; never held over I/O
	groups []admin.NodeGroup // with what makes each differ from the first
	until  time.Time
}

// fill adds what makes each of the groups differ from the first, if that is known.
func (c *configDiffs) fill(groups []admin.NodeGroup) (known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isSame := func(a, b admin.NodeGroup) bool { return a.Hash == b.Hash }
	if !slices.EqualFunc(c.groups, groups, isSame) || !time.Now().Before(c.until) {
		return false
	}
	for i, g := range c.groups {
		groups[i].Changes, groups[i].Unknown = g.Changes, g.Unknown
	}
	return true
}

// keep keeps groups that were compared.
func (c *configDiffs) keep(groups []admin.NodeGroup) {
	ttl := diffTTL
	if slices.ContainsFunc(groups, func(g admin.NodeGroup) bool { return g.Unknown != "" }) {
		ttl = unknownTTL
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups, c.until = slices.Clone(groups), time.Now().Add(ttl)
}

// compareGroups adds to each configuration but the first what makes it differ from that one.
func (n *Node) compareGroups(ctx context.Context, groups []admin.NodeGroup) {
	if len(groups) > 1 && !n.drift.fill(groups) {
		n.askGroups(ctx, groups)
		n.drift.keep(groups)
	}
}

// askGroups asks one node of each group for its configuration, and compares them.
func (n *Node) askGroups(ctx context.Context, groups []admin.NodeGroup) {
	q := cluster.ConfigQuery{Once: make([]byte, 16)}
	rand.Read(q.Once)
	for _, g := range groups {
		asked := g.Nodes[0]
		if slices.Contains(g.Nodes, n.store.id) {
			asked = n.store.id
		}
		q.Nodes = append(q.Nodes, asked)
	}
	served := map[string]config.Parts{}
	replies, _ := n.gatherAnswers(ctx, cluster.Question{Config: &q})
	for _, r := range replies {
		if c := r.Seen.Config; c != nil {
			served[c.Hash] = c.Parts
		}
	}
	first := served[groups[0].Hash]
	for i := 1; i < len(groups); i++ {
		g := &groups[i]
		switch own := served[g.Hash]; {
		case first == nil:
			g.Unknown = q.Nodes[0] + " did not say what it serves"
		case own == nil:
			g.Unknown = q.Nodes[i] + " did not say what it serves"
		default:
			g.Changes = config.CompareParts(first, own)
		}
	}
}
