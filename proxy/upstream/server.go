package upstream

import "time"

// slowest is the part of its share that a target begins with when it is back.
const slowest = 0.1

// A server is what is known of one target. Its crew's mutex guards it.
type server struct {
	pools  int       // that have it as a target
	busy   int       // requests under way
	failed int       // connections in a row that could not be made
	rests  time.Time // until when it is left alone
	missed int       // looks in a row that it did not pass
	down   bool      // as the last looks say
	since  time.Time // when it came back; zero if it was never away
}

// connects notes that s was reached.
func (s *server) connects(now time.Time, h Health) {
	if h.After > 0 && s.failed >= h.After {
		s.since = now
	}
	s.failed, s.rests = 0, time.Time{}
}

// refuses notes that s could not be reached. From the h.After-th time in a row
// it rests, up to a quarter longer by spread, 0 to 1: not all proxies shall come
// back to it at once.
func (s *server) refuses(now time.Time, h Health, spread float64) {
	s.failed++
	if h.After > 0 && s.failed >= h.After {
		s.rests = now.Add(h.Rest + time.Duration(spread*float64(h.Rest)/4))
	}
}

// looked notes how a look at s went. It is down from the h.After-th bad look in
// a row on, and up with the first good one.
func (s *server) looked(now time.Time, h Health, good bool) {
	if !good {
		s.missed++
		s.down = s.down || s.missed >= h.After
		return
	}
	if s.down || h.After > 0 && s.failed >= h.After {
		s.since = now
	}
	s.missed, s.down, s.failed, s.rests = 0, false, 0, time.Time{}
}

// tired reports whether s is asked only when no other can be: it rests, or it
// has rested and one request is finding out whether that has helped.
func (s *server) tired(now time.Time, h Health) bool {
	return now.Before(s.rests) || h.After > 0 && s.failed >= h.After && s.busy > 0
}

// ramp is the part of its share that s gets, growing from the time it came back.
func (s *server) ramp(now time.Time, h Health) float64 {
	if s.since.IsZero() || h.SlowStart == 0 {
		return 1
	}
	return min(max(float64(now.Sub(s.since))/float64(h.SlowStart), slowest), 1)
}
