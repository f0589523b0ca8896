package limiter

// The counter of a FixedWindow limit starts with the first permit. Its state is start,
// which is 0 for none, and taken.

// advanceFixedWindow resets the count if the window is over.
func (s *keyState) advanceFixedWindow(now int64, l *Limit) {
	length := windowMillis(l)
	s.permitLog.advance(now, length)
	s.start = min(s.start, now)
	if now-s.start >= length {
		s.start, s.taken = 0, 0
	}
}

// remainingFixedWindow returns the permits that the window has left.
func (s *keyState) remainingFixedWindow(l *Limit) int64 { return l.Rate.Count - s.taken }

// waitFixedWindow returns the time until the window is over.
func (s *keyState) waitFixedWindow(now int64, l *Limit) int64 {
	return s.start + windowMillis(l) - now
}

// takeFixedWindow counts cost permits at now.
func (s *keyState) takeFixedWindow(now, cost int64) {
	if s.start == 0 {
		s.start = now
	}
	s.taken += cost
}

// refundFixedWindow returns the permits of p if they were taken in this window.
func (s *keyState) refundFixedWindow(now int64, p Permit, c *Claim) int64 {
	if s.start == 0 || p.At.UnixMilli() < s.start || !s.holds(now, windowMillis(c.Limit), p) {
		return 0
	}
	n := min(c.Cost, s.taken)
	s.taken -= n
	return s.markRefund(p, n)
}

// grantFixedWindow removes n permits from the count.
func (s *keyState) grantFixedWindow(n int64) { s.taken -= min(n, s.taken) }
