//go:build !unix

package http1

import "syscall"

// readFirst has nothing to read with: conn.waitForRequest takes the other way.
func (c *conn) readFirst(uintptr) bool { c.firstRead.err = syscall.EINVAL; return true }
