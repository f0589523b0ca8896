//go:build !unix

package http1

// step is never called: clientConn.rawConn is nil on these systems.
func (a *reuseAttempt) step(uintptr) bool { return true }
