package proxy

import (
	"sync"
	"time"
)

// A writeTimeout resets an HTTP/2 stream whose client has not read for too long, while other streams of
// the connection continue. It has its own timer: net/http would keep a finished stream in memory
// until the write deadline set for it, so that a client that resets its requests could fill the
// memory. The zero value never resets.
type writeTimeout struct {
	after       time.Duration // 0 disables it
	setDeadline func(time.Time) error

	mu    sync.Mutex // guards what follows
	armed bool
	timer *time.Timer
}

// begin must be called before each write.
func (s *writeTimeout) begin() {
	if s == nil || s.after == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(s.after, s.fire)
		return
	}
	s.timer.Reset(s.after)
}

// end must be called after each write. It stops the timer.
func (s *writeTimeout) end() {
	if s == nil || s.after == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	s.timer.Stop()
}

func (s *writeTimeout) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed {
		_ = s.setDeadline(time.Unix(1, 0)) // a deadline in the past resets the stream at once and starts no timer
	}
}
