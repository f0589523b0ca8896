package upstream

import "sync"

// Groups keeps the health of targets and the queues of upstreams across reloads. A
// target that was ejected by one pool stays ejected in the pool that replaces it. The
// state of an upstream is removed when its last pool is closed. Groups is safe for
// concurrent use.
type Groups struct {
	mu     sync.Mutex // guards what follows
	groups map[string]*group
}

// NewGroups returns empty Groups.
func NewGroups() *Groups { return &Groups{groups: map[string]*group{}} }

// join returns the group of the upstream, which is created if it is new.
func (g *Groups) join(name string) *group {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.groups[name]
	if c == nil {
		c = newGroup()
		g.groups[name] = c
	}
	c.pools++
	return c
}

// leave removes the group if no pool uses it any more.
func (g *Groups) leave(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.groups[name]
	if c.pools--; c.pools == 0 {
		delete(g.groups, name)
	}
}
