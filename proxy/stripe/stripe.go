// Package stripe spreads what every request writes over the processors: each has a stripe, memory that
// the others seldom write. A cache line that all processors write moves from one to the other with each
// request, which costs more than what is written, and more so with each processor. What is in stripes is
// added up when it is read.
package stripe

import (
	"runtime"
	"sync/atomic"
	_ "unsafe" // for go:linkname
)

// LineSize is the distance in bytes of memory that different processors write. Processors fetch two
// cache lines of 64 bytes together.
const LineSize = 128

// Numbers numbers the stripes of the processors. It is safe for concurrent use.
type Numbers struct{ count int }

// maxStripes bounds the memory of stripes. Beyond it processors share them.
const maxStripes = 64

// New returns Numbers for the processors of the process.
func New() *Numbers { return NewFor(runtime.GOMAXPROCS(0)) }

// NewFor returns Numbers for so many processors.
func NewFor(processors int) *Numbers { return &Numbers{count: min(max(processors, 1), maxStripes)} }

// Count returns the number of stripes.
func (n *Numbers) Count() int { return n.count }

// Own returns the stripe of the processor that runs the caller, from 0 to Count()-1. The caller may be
// moved to another processor at any time, and two processors may have the same stripe if there are more than
// stripes, so that what is in a stripe must be safe for concurrent use.
func (n *Numbers) Own() int {
	if n.count == 1 {
		return 0
	}
	own := procPin()
	procUnpin()
	if own >= n.count {
		own %= n.count
	}
	return own
}

// procPin returns the number of the processor that runs the caller, which stays on it until procUnpin. The
// runtime exports both only in this way, for packages that many programs use. A sync.Pool, whose values
// belong to processors too, is no replacement: a garbage collection drops the values of idle processors, and
// busy ones take those of others, so that soon several processors have one number.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// Users counts the users of something in stripes. The zero value is not usable; NewUsers returns one.
type Users struct{ lines []line }

type line struct {
	n atomic.Int64
	_ [LineSize - 8]byte
}

// NewUsers returns Users in so many stripes.
func NewUsers(stripes int) Users { return Users{make([]line, stripes)} }

// Add adds n users, which may be negative, in a stripe. If each leaves in the stripe in which it came, Sum
// misses none that stays meanwhile, whoever else comes and goes.
func (u Users) Add(stripe int, n int64) { u.lines[stripe].n.Add(n) }

// Sum returns the number of users.
func (u Users) Sum() (sum int64) {
	for i := range u.lines {
		sum += u.lines[i].n.Load()
	}
	return sum
}
