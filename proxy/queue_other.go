//go:build !linux

package proxy

import "net"

// queued cannot be known here.
func queued(net.Listener) bool { return false }

// deafen is for Linux.
func deafen(net.Listener) {}
