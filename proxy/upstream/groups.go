package upstream

import "sync"

// Groups remember how the targets of upstreams fare, across all pools that
// are made with them: a target that one pool found dead is not asked by the pool
// that replaces it. They forget an upstream when its last pool is closed. They are
// safe for concurrent use.
type Groups struct {
	mu     sync.Mutex // guards what follows
	groups map[string]*group
}

// NewGroups makes Groups that know nothing yet.
func NewGroups() *Groups { return &Groups{groups: map[string]*group{}} }

// join returns the group of the upstream called name, made when it is new.
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

// leave forgets the group when nobody needs it any more.
func (g *Groups) leave(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.groups[name]
	if c.pools--; c.pools == 0 {
		delete(g.groups, name)
	}
}
