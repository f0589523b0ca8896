//go:build !unix

package http1

import "syscall"

// look cannot tell anything here.
func look(syscall.RawConn) Presence { return Silent }
