//go:build !unix

package http1

import "syscall"

// canPoll reports that these systems offer no way to find out the state of a connection
// without reading: clients that are gone are not noticed while their requests wait, and
// idle connections are checked by an idleRead.
const canPoll = false

func peerState(syscall.RawConn) PeerState { return PeerOpen }

// pollPeer is never called.
func pollPeer(uintptr) PeerState { return PeerReset }
