//go:build !unix

package http1

import "syscall"

// look cannot tell anything here.
func look(syscall.RawConn) Presence { return Silent }

// lookAt cannot tell anything here, so that no connection is taken to be fit.
func lookAt(uintptr) Presence { return Broken }
