package proxy

import (
	"sync"
	"time"
)

// A stall cuts a stream of HTTP/2 off when its reader takes nothing for long, while
// others on its connection go on. It counts the time by itself: net/http would keep
// a stream that is gone for as long as the deadline that was set for it, and a
// client that takes back what it asks would fill the memory with them. The zero
// stall never cuts.
type stall struct {
	after time.Duration // 0 is never
	cut   func(time.Time) error

	mu    sync.Mutex // guards what follows
	armed bool
	timer *time.Timer
}

// begin is called before something is written.
func (s *stall) begin() {
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

// end is called when it has been. After that the stream is left alone.
func (s *stall) end() {
	if s == nil || s.after == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	s.timer.Stop()
}

func (s *stall) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed {
		_ = s.cut(time.Unix(1, 0)) // ends the stream at once, and sets no timer
	}
}
