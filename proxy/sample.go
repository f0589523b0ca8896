package proxy

import (
	"sync"
	"time"
)

// loggedResets is the maximum number of log lines per second for HTTP/2 requests that were reset by
// their clients. Such a request costs a client almost nothing, and a line for each would cost more
// than the request. The others are only counted.
const loggedResets = 10

// A logSampler limits events to a number per second.
type logSampler struct {
	perSecond int

	mu     sync.Mutex // guards what follows
	second int64
	passed int
}

// allow reports whether an event at now is within the limit.
func (s *logSampler) allow(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if second := now.Unix(); second != s.second {
		s.second, s.passed = second, 0
	}
	s.passed++
	return s.passed <= s.perSecond
}
