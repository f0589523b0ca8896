package proxy

import (
	"sync"
	"time"
)

// loggedResets is how many lines a second tell of requests over HTTP/2 that their
// clients took back: such a request costs a client next to nothing, and a line each
// would cost more than the request. The others are counted.
const loggedResets = 10

// A sample lets a few pass each second.
type sample struct {
	most int

	mu     sync.Mutex // guards what follows
	second int64
	passed int
}

// passes reports whether one more may pass at now.
func (s *sample) passes(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if second := now.Unix(); second != s.second {
		s.second, s.passed = second, 0
	}
	s.passed++
	return s.passed <= s.most
}
