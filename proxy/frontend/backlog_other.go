//go:build !linux

package frontend

import "net"

// pending returns false: the accept backlog cannot be examined on these systems.
func pending(net.Listener) bool { return false }

// dropSYN does nothing. It exists only for Linux.
func dropSYN(net.Listener) {}
