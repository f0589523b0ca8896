package lock

import "slices"

// all returns the names of everything that an owner of lk holds in Redis, so that locks
// which share a part have a name in common.
func (lk *Lock) all() []string {
	if lk.things == nil {
		return []string{lk.role + lk.name}
	}
	return lk.things
}

// overlaps reports whether owner holds a part of lk as a part of another lock. Redis counts
// holds per owner, not per lock: unlocking one of the two would release a part of the
// other. It checks every session of the Locker, but only for WithOwner.
func (l *Locker) overlaps(lk *Lock, owner Owner) bool {
	ours := lk.all()
	var others []*session
	l.mu.Lock()
	for g, s := range l.sessions {
		if g.owner == owner && (g.role != lk.role || g.name != lk.name) {
			others = append(others, s)
		}
	}
	l.mu.Unlock()
	return slices.ContainsFunc(others, func(s *session) bool {
		return s.check() == nil && slices.ContainsFunc(s.lock.all(), func(thing string) bool { return slices.Contains(ours, thing) })
	})
}
