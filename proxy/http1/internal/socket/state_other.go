//go:build !unix

package socket

import "syscall"

// CanPoll reports that these systems offer no way to find out the state of a connection
// without reading: clients that are gone are not noticed while their requests wait, and
// idle connections are checked by an idleRead.
const CanPoll = false

// StateOf returns Open.
func StateOf(syscall.RawConn) State { return Open }

// pollPeer is never called.
func pollPeer(uintptr) State { return Reset }

// readSocket is never called: newTLS makes no TLSConn.
func (c *TLSConn) readSocket([]byte) (int, error) { return 0, ErrWouldBlock }

// Step is never called: connections have no socket here that can be polled.
func (w *WriteOp) Step(uintptr) bool { return true }
