//go:build !unix

package http1

import "syscall"

// peerState returns PeerOpen: these systems offer no way to find out more without
// reading.
func peerState(syscall.RawConn) PeerState { return PeerOpen }

// pollPeer returns PeerReset, so that no idle connection is used again: it could not
// be checked before.
func pollPeer(uintptr) PeerState { return PeerReset }
