package redisstore

import "sync/atomic"

// masters are which master a client that asks sentinels has found last. The client lets
// go of its connections to another; a pipeline has to hear of that.
type masters struct {
	last atomic.Pointer[string]
}

// set is told of each connection that is made.
func (m *masters) set(addr string) {
	if m != nil {
		m.last.Store(&addr)
	}
}

// isCurrent reports whether no other master than the one at addr is known.
func (m *masters) isCurrent(addr string) bool {
	if m == nil {
		return true
	}
	last := m.last.Load()
	return last == nil || *last == addr
}
