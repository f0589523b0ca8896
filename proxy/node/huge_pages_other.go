//go:build !linux

package node

// A hugePages does nothing on these systems: they have no transparent huge pages for which programs ask.
type hugePages struct{}

func newHugePages() *hugePages { return nil }

func (h *hugePages) advance() {}

func (h *hugePages) forget() {}
