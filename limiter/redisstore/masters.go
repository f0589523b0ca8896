package redisstore

import "sync/atomic"

// masters records the master that a client with Sentinel has found last. The client
// closes its connections to other servers, and a pipeline must do the same.
type masters struct {
	last atomic.Pointer[string]
}

// set is called for each new connection.
func (m *masters) set(addr string) {
	if m != nil {
		m.last.Store(&addr)
	}
}

// isCurrent reports whether no master other than the one at addr is known.
func (m *masters) isCurrent(addr string) bool {
	if m == nil {
		return true
	}
	last := m.last.Load()
	return last == nil || *last == addr
}
