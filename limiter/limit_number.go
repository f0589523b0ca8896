package limiter

import (
	"maps"
	"sync"
	"sync/atomic"
)

// limitNumbers are the numbers of limits in one Memory. Limits with the same name, such as
// a limit and its changed version, have the same number.
type limitNumbers struct {
	mu    sync.Mutex // guards writes of names
	names atomic.Pointer[map[string]uint32]
}

// A limitNumber is the number that a limit has in one Memory.
type limitNumber struct {
	of     *limitNumbers
	number uint32
}

func newLimitNumbers() *limitNumbers {
	n := &limitNumbers{}
	n.names.Store(&map[string]uint32{})
	return n
}

// number returns the number of l. It does not allocate for a known limit. A prepared limit
// remembers its number in the Memory that asks first; the others look up its name.
func (n *limitNumbers) number(l *Limit) uint32 {
	if !l.isPrepared() {
		return n.named(l.Name)
	}
	known := l.prepared.number.Load()
	if known == nil {
		known = &limitNumber{n, n.named(l.Name)}
		l.prepared.number.CompareAndSwap(nil, known)
	}
	if known.of != n {
		return n.named(l.Name)
	}
	return known.number
}

// named returns the number of the limits with this name.
func (n *limitNumbers) named(name string) uint32 {
	if number, ok := (*n.names.Load())[name]; ok {
		return number
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	names := maps.Clone(*n.names.Load())
	if number, ok := names[name]; ok {
		return number
	}
	number := uint32(len(names))
	names[name] = number
	n.names.Store(&names)
	return number
}
