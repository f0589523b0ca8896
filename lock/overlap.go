package lock

import "slices"

// resourceNames returns the names of everything that an owner of l holds in Redis. Locks
// that share a resource have a name in common.
func (l *Lock) resourceNames() []string {
	if l.resources == nil {
		return []string{l.namespace + l.name}
	}
	return l.resources
}

// overlaps reports whether owner holds a part of lk as part of another lock. Redis counts
// the holds of an owner for each resource, not for each lock, so the first unlock would
// release what the other lock relies on. It checks every session of the Locker, but is
// only called with WithOwner.
func (l *Locker) overlaps(lk *Lock, owner Owner) bool {
	ours := lk.resourceNames()
	var others []*session
	l.mu.Lock()
	for g, s := range l.sessions {
		if g.owner == owner && (g.namespace != lk.namespace || g.name != lk.name) {
			others = append(others, s)
		}
	}
	l.mu.Unlock()
	return slices.ContainsFunc(others, func(s *session) bool {
		return s.endCause() == nil && slices.ContainsFunc(s.lock.resourceNames(), func(thing string) bool { return slices.Contains(ours, thing) })
	})
}
