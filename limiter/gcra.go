package limiter

import (
	"fmt"
	"math"
	"time"
)

// The state of a GCRA limit is debt, the permits that are not available again at the time
// start, and before, the last time at which it was 0. A debt from a higher limit counts as the
// capacity, so that no wait is longer than the horizon.

// checkGCRA checks the burst.
func (l *Limit) checkGCRA() error {
	switch {
	case l.Burst < 0 || l.Burst > MaxCount:
		return fmt.Errorf("%w: %s has a burst of %d; it is 1 to %d", ErrInvalidLimit, l.Name, l.Burst, int64(MaxCount))
	case float64(l.Capacity())/float64(l.Rate.Count) > float64(MaxWindow/l.Rate.Window):
		return fmt.Errorf("%w: %s needs more than 366d to refill a burst of %d", ErrInvalidLimit, l.Name, l.Burst)
	}
	return nil
}

// horizonGCRA returns the time in which all permits become available.
func (l *Limit) horizonGCRA() time.Duration {
	ms := math.Ceil(float64(l.Capacity()) * float64(l.Rate.Window.Milliseconds()) / float64(l.Rate.Count))
	return time.Duration(ms) * time.Millisecond
}

// advanceGCRA removes expired marks.
func (s *keyState) advanceGCRA(now int64, l *Limit) {
	s.permitLog.advance(now, l.horizonGCRA().Milliseconds())
	s.start = min(s.start, now)
}

// remainingGCRA returns the permits that the debt leaves.
func (s *keyState) remainingGCRA(now int64, l *Limit) int64 {
	return int64(math.Floor(float64(l.Capacity()) - s.debtAt(now, l) + epsilon))
}

// waitGCRA returns the time until cost permits are available.
func (s *keyState) waitGCRA(now int64, l *Limit, cost int64) int64 {
	over := s.debtAt(now, l) + float64(cost) - float64(l.Capacity()) - epsilon
	at := now + max(1, int64(math.Ceil(over*float64(windowMillis(l))/float64(l.Rate.Count))))
	for at > now+1 && s.remainingGCRA(at-1, l) >= cost {
		at--
	}
	for s.remainingGCRA(at, l) < cost {
		at++
	}
	return at - now
}

// takeGCRA adds cost permits to the debt.
func (s *keyState) takeGCRA(now int64, l *Limit, cost int64) {
	owed := s.debtAt(now, l)
	if owed == 0 {
		s.before = now
	}
	s.debt, s.start = owed+float64(cost), now
}

// refundGCRA returns the permits of p, if the debt has not been zero since they were
// taken: permits that were taken last become available last.
func (s *keyState) refundGCRA(now int64, p Permit, c *Claim) int64 {
	owed := s.debtAt(now, c.Limit)
	if owed == 0 || p.At.UnixMilli() < s.before || !s.holds(now, c.Limit.horizonGCRA().Milliseconds(), p) {
		return 0
	}
	s.debt, s.start = max(0, owed-float64(c.Cost)), now
	return s.markRefund(p, c.Cost)
}

// grantGCRA removes n permits from the debt.
func (s *keyState) grantGCRA(now int64, l *Limit, n int64) {
	s.debt, s.start = max(0, s.debtAt(now, l)-float64(n)), now
}

// epsilon is the tolerance for rounding errors of sums of fractions, in permits.
const epsilon = 1e-6

// debtAt returns the number of permits that are not available again at now.
func (s *keyState) debtAt(now int64, l *Limit) float64 {
	owed := min(s.debt, float64(l.Capacity()))
	return max(0, owed-float64(now-s.start)*float64(l.Rate.Count)/float64(windowMillis(l)))
}
