package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// Rollback implements admin.Cluster.
func (a pushAPI) Rollback(ctx context.Context, r admin.Rollback) (admin.Pushed, error) {
	entries, err := a.store.cluster.History(ctx)
	if err != nil {
		return admin.Pushed{}, err
	}
	i := rollbackTo(entries)
	switch {
	case r.Generation != 0:
		if i = slices.IndexFunc(entries, func(e cluster.Entry) bool { return e.Generation == r.Generation }); i < 0 {
			return admin.Pushed{}, &admin.Problem{Status: http.StatusNotFound, Detail: "there is no such generation in the history; weir history lists them"}
		}
	case i < 0:
		return admin.Pushed{}, &admin.Problem{Status: http.StatusNotFound, Detail: "no earlier generation in the history differs from what is served and from what was rolled back; weir history lists them: name one"}
	}
	if err := entries[i].Unreadable; err != nil {
		return admin.Pushed{}, unreadable(entries[i], err)
	}
	p := cluster.Push{Bundle: entries[i].Bundle, Author: authorOf(ctx, r.Author, r.Sender), From: entries[i].Generation}
	if r.DryRun {
		return a.try(ctx, p)
	}
	return a.push(ctx, p)
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

// Diff implements admin.Cluster. It compares a generation with the one pushed before it.
func (a pushAPI) Diff(ctx context.Context, generation int64) (admin.Diff, error) {
	entries, err := a.store.cluster.History(ctx)
	if err != nil {
		return admin.Diff{}, err
	}
	i := slices.IndexFunc(entries, func(e cluster.Entry) bool { return e.Generation == generation })
	if i < 0 {
		return admin.Diff{}, &admin.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("generation %d is not in the history; weir history lists what is", generation)}
	}
	once := make([]byte, 16)
	rand.Read(once)
	after, is, err := a.shown(entries[i], once)
	if err != nil {
		return admin.Diff{}, err
	}
	d := admin.Diff{Entry: entry(entries[i]), Changes: []config.Change{}}
	if i+1 == len(entries) {
		d.Diff = compareFiles(bundle.Bundle{}, is)
		return d, nil
	}
	before, was, err := a.shown(entries[i+1], once)
	if err != nil {
		return admin.Diff{}, err
	}
	d.Changes, d.Diff = config.Compare(before, after), compareFiles(was, is)
	return d, nil
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
	before, after := was.Others(), is.Others()
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all.Write(diff.Diff("a/"+name, []byte(before[name]), "b/"+name, []byte(after[name])))
	}
	return all.String()
}
