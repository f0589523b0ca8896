//go:build !unix

package http1

// step has nothing to ask with: upstream.raw is nil here.
func (a *asking) step(uintptr) bool { return true }

// step has nothing to write with, as above.
func (w *putting) step(uintptr) bool { return true }
