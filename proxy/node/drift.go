package node

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
)

const (
	// diffTTL is how long the difference of two configurations is kept, and unknownTTL how long it is not
	// asked for again after a node did not answer.
	diffTTL    = 10 * time.Minute
	unknownTTL = 10 * time.Second
)

// A configDiff is what makes a configuration differ from the one of most nodes.
type configDiff struct {
	changes []config.Change
	unknown string // why the changes are not known
	until   time.Time
}

// configDiffs are the differences that were found, by the hashes of the two configurations: pages that show
// them are refreshed every few seconds, and nodes are asked once.
type configDiffs struct {
	mu    sync.Mutex // guards what follows; never held over I/O
	known map[[2]string]configDiff
}

// find returns the known differences from the first of groups to each of the others.
func (c *configDiffs) find(groups []admin.NodeGroup) (found []configDiff, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range groups[1:] {
		d := c.known[[2]string{groups[0].Hash, g.Hash}]
		if time.Now().After(d.until) {
			return nil, false
		}
		found = append(found, d)
	}
	return found, true
}

// keep keeps the differences from the first of groups to the others.
func (c *configDiffs) keep(groups []admin.NodeGroup, found []configDiff) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.known, func(_ [2]string, d configDiff) bool { return now.After(d.until) })
	if c.known == nil {
		c.known = map[[2]string]configDiff{}
	}
	for i, d := range found {
		c.known[[2]string{groups[0].Hash, groups[i+1].Hash}] = d
	}
}

// compareGroups adds to each configuration but the first what makes it differ from that one.
func (n *Node) compareGroups(ctx context.Context, groups []admin.NodeGroup) {
	if len(groups) < 2 {
		return
	}
	found, all := n.drift.find(groups)
	if !all {
		found = n.diffGroups(ctx, groups)
		n.drift.keep(groups, found)
	}
	for i, d := range found {
		groups[i+1].Changes, groups[i+1].Unknown = d.changes, d.unknown
	}
}

// diffGroups asks one node of each group for its configuration.
func (n *Node) diffGroups(ctx context.Context, groups []admin.NodeGroup) []configDiff {
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
	var found []configDiff
	now := time.Now()
	for i, g := range groups[1:] {
		d := configDiff{until: now.Add(unknownTTL)}
		switch {
		case served[groups[0].Hash] == nil:
			d.unknown = q.Nodes[0] + " did not say what it serves"
		case served[g.Hash] == nil:
			d.unknown = q.Nodes[i+1] + " did not say what it serves"
		default:
			d.changes, d.until = config.CompareParts(served[groups[0].Hash], served[g.Hash]), now.Add(diffTTL)
		}
		found = append(found, d)
	}
	return found
}
