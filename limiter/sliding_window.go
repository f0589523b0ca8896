package limiter

import (
	"cmp"
	"math"
)

// The counters of a SlidingWindow limit are for the current fixed window and the one
// before. Windows are numbered from time 0. Its state is start, which is the number of the
// current window, taken and, for the previous one, before.

// advanceSlidingWindow moves to the window of now.
func (s *keyState) advanceSlidingWindow(now int64, l *Limit) {
	length := windowMillis(l)
	s.permitLog.advance(now, 2*length)
	number := now / length
	switch {
	case number == s.start+1:
		s.before, s.taken = s.taken, 0
	case number > s.start:
		s.before, s.taken = 0, 0
	}
	s.start = number
}

// waitSlidingWindow returns the time until at most Rate.Count - cost permits are used. That is
// in the current window, while the weight of the previous one decreases, or in the next
// one, while the weight of the current one does.
func (s *keyState) waitSlidingWindow(now int64, l *Limit, cost int64) int64 {
	length, maxUsed := windowMillis(l), l.Rate.Count-cost
	fading, border, free := s.before, (s.start+1)*length, maxUsed-s.taken
	if s.taken > maxUsed {
		fading, border, free = s.taken, border+length, maxUsed
	}
	return s.waitNear(border-int64(float64(max(0, free))*float64(length)/float64(max(1, fading))), now, l, cost)
}

// refundSlidingWindow returns the permits of p to the window that they were taken in.
func (s *keyState) refundSlidingWindow(now int64, p Permit, c *Claim) int64 {
	length := windowMillis(c.Limit)
	if !s.holds(now, 2*length, p) {
		return 0
	}
	return s.markRefund(p, s.removeFromWindow(p.At.UnixMilli()/length, c.Cost))
}

// grantSlidingWindow removes n permits, first from the current window.
func (s *keyState) grantSlidingWindow(n int64) {
	n -= s.removeFromWindow(s.start, n)
	s.removeFromWindow(s.start-1, n)
}

// weightedCount returns the weighted count at now: the count of the current window, plus
// that of the previous window scaled by the part that overlaps the sliding window,
// rounded up.
func (s *keyState) weightedCount(now, length int64) int64 {
	switch number := now / length; {
	case number == s.start:
		return s.taken + scaleUp(s.before, number*length+length-now, length)
	case number == s.start+1:
		return scaleUp(s.taken, number*length+length-now, length)
	}
	return 0
}

// scaleUp returns n * part / length, rounded up.
func scaleUp(n, part, length int64) int64 {
	return int64(math.Ceil(float64(n) * (float64(part) / float64(length))))
}

// removeFromWindow removes up to n permits from the window with this number.
func (s *keyState) removeFromWindow(number, n int64) int64 {
	from := &s.taken
	switch number {
	case s.start:
	case s.start - 1:
		from = &s.before
	default:
		return 0
	}
	n = min(n, *from)
	*from -= n
	return n
}

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

// takeFixedWindow counts cost permits at now.
func (s *keyState) takeFixedWindow(now, cost int64) {
	s.start = cmp.Or(s.start, now)
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
