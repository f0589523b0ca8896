package http2

import (
	"net/netip"
	"sync"
)

// A Budget bounds the memory of the request bodies of all connections. It is safe for
// concurrent use.
type Budget interface {
	// Reserve reserves n bytes for a client that has reserved own bytes before, and reports
	// whether they were available.
	Reserve(client netip.Prefix, own, n int64) bool
	// Release releases n bytes that the client has reserved.
	Release(client netip.Prefix, n int64)
}

const (
	// unreadBase is how many bytes of bodies a connection may hold that were not read, beside
	// what it reserves from the Budget of the server, and unreadStep how many it reserves at a
	// time.
	unreadBase = 16 << 10
	unreadStep = 64 << 10
)

// unreadBytes counts the bytes of request bodies that a connection has received and no handler
// has read. It is guarded by the mutex of its connection.
type unreadBytes struct {
	bytes    int
	reserved int64
	fewer    sync.Cond // some were read
}

// awaitMemoryLocked waits until there is memory for n bytes more. The connection is not read meanwhile,
// so that its client has to wait, too. Handlers that would read what is unread have begun.
func (c *conn) awaitMemoryLocked(n int) {
	u := &c.unread
	if u.reserve(c, u.bytes+n) {
		return
	}
	c.mu.Unlock()
	c.beginAll()
	c.mu.Lock()
	for c.err == nil && !u.reserve(c, u.bytes+n) {
		if len(c.out.b) > 0 && !c.out.writing {
			c.flushLocked()
		} else {
			u.fewer.Wait()
		}
	}
}

// reserve makes sure that there is memory for so many bytes.
func (u *unreadBytes) reserve(c *conn, bytes int) bool {
	missing := int64(bytes) - unreadBase - u.reserved
	if missing <= 0 || c.server.Budget == nil {
		return true
	}
	missing = (missing + unreadStep - 1) / unreadStep * unreadStep
	if !c.server.Budget.Reserve(c.client(), max(u.reserved, 1), missing) {
		return false
	}
	u.reserved += missing
	return true
}

// add counts n bytes more, or fewer. It releases what is reserved beyond a step.
func (u *unreadBytes) add(c *conn, n int) {
	u.bytes += n
	if n >= 0 {
		return
	}
	if spare := u.reserved - max(0, int64(u.bytes)-unreadBase); spare >= 2*unreadStep || u.bytes == 0 && spare > 0 {
		c.server.Budget.Release(c.client(), spare)
		u.reserved -= spare
	}
	u.fewer.Signal()
}

// client returns the network for which memory is reserved.
func (c *conn) client() netip.Prefix {
	addr := c.peer.Addr().Unmap()
	network, _ := addr.Prefix(min(64, addr.BitLen())) // a unix socket has none
	return network
}
