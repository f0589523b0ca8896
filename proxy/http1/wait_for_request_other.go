//go:build !unix

package http1

import "syscall"

// readFirst is never called: conn.rawConn and conn.secure are nil on these systems.
func (c *conn) readFirst(uintptr) bool { c.firstRead.err = syscall.EINVAL; return true }
