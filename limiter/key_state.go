package limiter

// A keyState is the state of one key under one limit: the permits that were taken, in the
// form that the limit's algorithm needs. Times are milliseconds and always arguments. The
// zero keyState is that of an unused key.
type keyState struct {
	// window is the log of TokenBucket, SlidingLog, Concurrent, Distinct and Cooldown.
	// The other algorithms use window.taken as a counter, and its entries only as marks
	// of refunded permits.
	window
	algorithm Algorithm
	counter
	bannedUntil int64 // end of a ban
}

// A counter is the state of an algorithm without a log.
type counter struct {
	start  int64   // FixedWindow: start of the window. SlidingWindow: its number. GCRA: time of debt
	before int64   // SlidingWindow: permits of the previous window. GCRA: when debt was 0 last
	debt   float64 // GCRA: permits that are not available again yet
}

// advance moves t to now: it removes expired permits. A state of another algorithm is
// discarded, because it cannot be converted.
func (t *keyState) advance(now int64, l *Limit) {
	if t.algorithm != l.Algorithm {
		*t = keyState{algorithm: l.Algorithm, bannedUntil: t.bannedUntil, window: window{floor: now - 1}}
	}
	if l.Algorithm == Cooldown {
		t.advanceCooldown(now, windowMillis(l))
		return
	}
	t.window.advance(now, l.Horizon().Milliseconds())
	switch l.Algorithm {
	case FixedWindow:
		t.advanceFixed(now, windowMillis(l))
	case SlidingWindow:
		t.advanceSliding(now, windowMillis(l))
	case GCRA:
		t.start = min(t.start, now)
	}
}

// remaining returns the number of available permits at now; it is negative if the rate
// was lowered below what is taken. advance must have been called.
func (t *keyState) remaining(now int64, l *Limit) int64 {
	switch l.Algorithm {
	case SlidingWindow:
		return l.Rate.Count - t.usedSliding(now, windowMillis(l))
	case GCRA:
		return t.remainingGCRA(now, l)
	case Cooldown:
		if t.pauseLeft(now, l) > 0 {
			return 0
		}
		return 1
	}
	return t.window.remaining(l.Rate.Count)
}

// wait returns the exact time until cost permits are available. advance must have been
// called.
func (t *keyState) wait(now int64, l *Limit, cost int64) int64 {
	if t.remaining(now, l) >= cost {
		return 0
	}
	switch l.Algorithm {
	case FixedWindow:
		return t.start + windowMillis(l) - now
	case SlidingWindow:
		return t.waitSliding(now, l, cost)
	case GCRA:
		return t.waitGCRA(now, l, cost)
	case Cooldown:
		return t.pauseLeft(now, l)
	}
	return t.window.wait(now, windowMillis(l), l.Rate.Count, cost)
}

// take takes the permits of c, even if fewer are available. advance must have been
// called.
func (t *keyState) take(now int64, c *Claim, id [16]byte) {
	l, cost := c.Limit, c.Cost
	switch l.Algorithm {
	case FixedWindow:
		if t.start == 0 {
			t.start = now
		}
		t.taken += cost
	case SlidingWindow:
		t.taken += cost
	case GCRA:
		t.takeGCRA(now, l, cost)
	case TokenBucket, SlidingLog:
		if len(t.entries) >= fullWindow {
			t.merge(windowMillis(l))
		}
		t.window.take(now, id, cost)
	case Concurrent:
		t.window.take(now, id, cost)
	case Distinct:
		t.addUse(now, id, c.Value)
	case Cooldown:
		t.takeCooldown(now, id)
	}
}

// refund returns what p took for c, and reports how many permits that were: 0 if they
// have expired or were refunded before. advance must have been called.
func (t *keyState) refund(now int64, p Permit, c Claim) int64 {
	at := p.At.UnixMilli()
	switch c.Limit.Algorithm {
	case TokenBucket, SlidingLog:
		return t.window.refund(now, p, c)
	case Concurrent, Cooldown:
		return t.release(p.ID)
	case Distinct:
		return t.removeUse(p.ID)
	}
	if at <= now-c.Limit.Horizon().Milliseconds() || !t.isUnmarked(at, p.ID) {
		return 0
	}
	n := t.refundCounter(now, at, c)
	if n > 0 {
		t.addMark(at, p.ID)
	}
	return n
}

// refundCounter returns to the counter those of c's permits, taken at the time at, that
// it still holds.
func (t *keyState) refundCounter(now, at int64, c Claim) int64 {
	switch c.Limit.Algorithm {
	case FixedWindow:
		if t.start == 0 || at < t.start {
			return 0
		}
		n := min(c.Cost, t.taken)
		t.taken -= n
		return n
	case SlidingWindow:
		return t.refundSliding(at/windowMillis(c.Limit), c.Cost)
	case GCRA:
		return t.refundGCRA(now, at, c)
	}
	return 0
}

// grant returns the last n permits of l to the key, as if they had not been taken.
func (t *keyState) grant(now int64, l *Limit, n int64) {
	switch l.Algorithm {
	case TokenBucket, SlidingLog, Concurrent:
		t.window.grant(n)
	case Distinct:
		t.grantValues(n)
	case Cooldown:
		t.grantCooldown(n)
	case FixedWindow:
		t.taken -= min(n, t.taken)
	case SlidingWindow:
		n -= t.refundSliding(t.start, n)
		t.refundSliding(t.start-1, n)
	case GCRA:
		t.debt, t.start = max(0, t.debtAt(now, l)-float64(n)), now
	}
}

// expiresAt returns a time at which the key certainly has no state left.
func (t *keyState) expiresAt(l *Limit) int64 {
	return max(t.bannedUntil, t.lastChange(l)+l.Horizon().Milliseconds())
}

// lastChange returns the time of the last change that t records.
func (t *keyState) lastChange(l *Limit) int64 {
	last := t.newestTime()
	switch l.Algorithm {
	case FixedWindow, GCRA:
		last = max(last, t.start)
	case SlidingWindow:
		last = max(last, t.start*windowMillis(l))
	}
	return last
}

func windowMillis(l *Limit) int64 { return l.Rate.Window.Milliseconds() }
