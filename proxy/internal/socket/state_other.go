//go:build !unix

package socket

import "net"

// CanPoll reports that these systems offer no way to find out the state of a connection
// without reading: clients that are gone are not noticed while their requests wait, and
// idle connections are checked by an idleRead.
const CanPoll = false

// pollPeer is never called.
func pollPeer(uintptr) State { return Reset }

// canWrite, unread, readNow and writeNow are never called: no Conn has a socket here, and newTLS makes no tlsConn.
func canWrite(uintptr) bool                           { return false }
func unread(uintptr) int                              { return 0 }
func readNow(net.Conn, uintptr, []byte) (int, error)  { return 0, ErrWouldBlock }
func writeNow(net.Conn, uintptr, []byte) (int, error) { return 0, ErrWouldBlock }
