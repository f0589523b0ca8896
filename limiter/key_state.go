package limiter

// A keyState is the state of one key under one limit: the permits that were taken, in the
// form that the limit's algorithm needs. Times are milliseconds and always arguments. The
// zero keyState is that of an unused key.
//
// Its methods call those of the algorithm, which are in the algorithm's file; without a
// case the permit log's apply. They are switches, because a call through a table or an
// interface would move each state to the heap.
type keyState struct {
	// permitLog is the log of algorithms that have one. The others use its taken as a
	// counter, and its entries only as marks of refunded permits.
	permitLog
	algorithm Algorithm
	counter
	bannedUntil int64 // end of a ban
}

// A counter is the state of an algorithm without a log. The algorithm's file says what
// its parts are.
type counter struct {
	start  int64
	before int64
	debt   float64
}

// advance moves s to now: it removes expired permits. A state of another algorithm is
// discarded, because it cannot be converted.
func (s *keyState) advance(now int64, l *Limit) {
	if s.algorithm != l.Algorithm {
		*s = keyState{algorithm: l.Algorithm, bannedUntil: s.bannedUntil, permitLog: permitLog{floor: now - 1}}
	}
	switch l.Algorithm {
	case FixedWindow:
		s.advanceFixedWindow(now, l)
	case SlidingWindow:
		s.advanceSlidingWindow(now, l)
	case GCRA:
		s.advanceGCRA(now, l)
	case Cooldown:
		s.advanceCooldown(now, l)
	case Conversion:
		s.advanceConversion(now, l)
	default:
		s.permitLog.advance(now, windowMillis(l))
	}
}

// remaining returns the number of available permits at now; it is negative if the rate
// was lowered below what is taken. advance must have been called.
func (s *keyState) remaining(now int64, l *Limit) int64 {
	switch l.Algorithm {
	case SlidingWindow:
		return l.Rate.Count - s.weightedCount(now, windowMillis(l))
	case GCRA:
		return s.remainingGCRA(now, l)
	case Cooldown:
		return s.remainingCooldown(now, l)
	case Conversion:
		return min(l.Rate.Count, l.allowance(s.confirmedSubjects())-s.taken)
	}
	return s.permitLog.remaining(l.Rate.Count)
}

// wait returns the exact time until cost permits are available. advance must have been
// called.
func (s *keyState) wait(now int64, l *Limit, cost int64) int64 {
	if s.remaining(now, l) >= cost {
		return 0
	}
	switch l.Algorithm {
	case FixedWindow:
		return s.start + windowMillis(l) - now
	case SlidingWindow:
		return s.waitSlidingWindow(now, l, cost)
	case GCRA:
		return s.waitGCRA(now, l, cost)
	case Cooldown:
		return s.waitCooldown(now, l)
	case Conversion:
		return s.waitConversion(now, l, cost)
	}
	return s.permitLog.wait(now, windowMillis(l), l.Rate.Count, cost)
}

// waitNear returns the time from now until cost permits are available, which is near the time at: that is not exact, because
// it is calculated with fractions. They are not available now.
func (s *keyState) waitNear(at, now int64, l *Limit, cost int64) int64 {
	at = max(at, now+1)
	for at > now+1 && s.remaining(at-1, l) >= cost {
		at--
	}
	for s.remaining(at, l) < cost {
		at++
	}
	return at - now
}

// take takes the permits of c, even if fewer are available. advance must have been
// called.
func (s *keyState) take(now int64, c *Claim, id [16]byte) {
	switch c.Limit.Algorithm {
	case FixedWindow:
		s.takeFixedWindow(now, c.Cost)
	case SlidingWindow:
		s.taken += c.Cost // in the current window
	case GCRA:
		s.takeGCRA(now, c.Limit, c.Cost)
	case Concurrent:
		s.add(now, id, c.Cost)
	case Distinct:
		s.takeDistinct(now, id, c.Value)
	case Cooldown:
		s.takeCooldown(now, id)
	case Conversion:
		s.takeConversion(now, c.Limit, c.Cost)
	default:
		s.permitLog.take(now, c, id)
	}
}

// refund returns what p took for c, and reports how many permits that were: 0 if they
// have expired or were refunded before. advance must have been called.
func (s *keyState) refund(now int64, p Permit, c *Claim) int64 {
	switch c.Limit.Algorithm {
	case FixedWindow:
		return s.refundFixedWindow(now, p, c)
	case SlidingWindow:
		return s.refundSlidingWindow(now, p, c)
	case GCRA:
		return s.refundGCRA(now, p, c)
	case Concurrent, Cooldown:
		return s.release(p.ID)
	case Distinct:
		return s.refundDistinct(p)
	case Conversion:
		return s.refundConversion(p, c)
	}
	return s.permitLog.refund(now, p, c)
}

// grant returns the last n permits of l to the key, as if they had not been taken.
func (s *keyState) grant(now int64, l *Limit, n int64) {
	switch l.Algorithm {
	case FixedWindow:
		s.taken -= min(n, s.taken)
	case SlidingWindow:
		s.grantSlidingWindow(n)
	case GCRA:
		s.debt, s.start = max(0, s.debtAt(now, l)-float64(n)), now
	case Distinct:
		s.grantDistinct(n)
	case Cooldown:
		s.grantCooldown(n)
	case Conversion:
		s.grantConversion(now, n)
	default:
		s.permitLog.grant(n)
	}
}
