package upstream

import "sync"

// A Fleet remembers how the targets of upstreams fare, across all pools that
// are made with it: a target that one pool found dead is not asked by the pool
// that replaces it. It forgets an upstream when its last pool is closed. It is
// safe for concurrent use.
type Fleet struct {
	mu     sync.Mutex // guards what follows
	groups map[string]*group
}

// NewFleet makes a Fleet that knows nothing yet.
func NewFleet() *Fleet { return &Fleet{groups: map[string]*group{}} }

// join returns the group of the upstream called name, made when it is new.
func (f *Fleet) join(name string) *group {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.groups[name]
	if c == nil {
		c = newGroup()
		f.groups[name] = c
	}
	c.pools++
	return c
}

// leave forgets the group when nobody needs it any more.
func (f *Fleet) leave(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.groups[name]
	if c.pools--; c.pools == 0 {
		delete(f.groups, name)
	}
}
