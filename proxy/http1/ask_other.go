//go:build !unix

package http1

// step has nothing to ask with: upstream.raw is nil here.
func (a *asking) step(uintptr) bool { return true }

func (a *asking) failure(*upstream) error { return a.err }
