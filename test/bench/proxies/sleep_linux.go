package main

import (
	"syscall"
	"time"
)

// sleep sleeps for d. Timers of the runtime may be a millisecond late.
func sleep(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // the caller sleeps again if it was too short
}
