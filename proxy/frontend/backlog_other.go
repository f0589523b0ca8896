//go:build !linux

package frontend

import "net"

// pending cannot be known here.
func pending(net.Listener) bool { return false }

// dropSYN is for Linux.
func dropSYN(net.Listener) {}
