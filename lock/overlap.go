package lock

import "slices"

// resourceNames is every thing that an owner of lk has in Redis, named so that locks which
// share one have a name in common.
func (lk *Lock) resourceNames() []string {
	if lk.resources == nil {
		return []string{lk.namespace + lk.name}
	}
	return lk.resources
}

// overlaps reports whether owner holds a part of lk as a part of another lock.
// Redis counts how often an owner holds a thing, not for which of its locks: the
// first of the two to be unlocked would give away what the other relies on. It looks
// at every session of the Locker, but only WithOwner asks.
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
