package limiter

// A keyState is what one key has taken of one limit, kept by the limit's algorithm.
// Times are milliseconds and always arguments. The zero tally is one of which
// nothing was taken.
type keyState struct {
	// The log of TokenBucket, SlidingLog, Concurrent, Distinct and Cooldown. The others use its
	// taken as their counter, and its entries only as marks of what was given back.
	window
	algorithm Algorithm
	counter
	bannedUntil int64 // until when nothing is left
}

// A counter is the state of an algorithm that keeps no log.
type counter struct {
	start  int64   // FixedWindow: of the window. SlidingWindow: its number. GCRA: when debt was right
	before int64   // SlidingWindow: permits of the window before. GCRA: when nothing was owed last
	debt   float64 // GCRA: permits that still flow back
}

// advance brings t to now. A tally of another algorithm starts again: its state
// says nothing about this one.
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

// remaining is how many permits are left at now; t is settled. It is negative while
// a count that was lowered is overdrawn.
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

// wait is the exact time until cost permits are left; t is settled.
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

// take takes what c asks for, whatever is left; t is settled.
func (t *keyState) take(now int64, c Claim, id [16]byte) {
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

// refund gives back what p took for c and returns how many permits that were: 0
// if they have come back already. t is settled.
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

// refundCounter takes out of the counter what is still in it of cost permits that
// were taken at the time at.
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

// grant gives n permits of l to the key on top: as if the latest n had not been
// taken.
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

// expiresAt is when the key is as if nothing had been taken, as far as is known.
func (t *keyState) expiresAt(l *Limit) int64 {
	return max(t.bannedUntil, t.lastChange(l)+l.Horizon().Milliseconds())
}

// lastChange is when t was changed last, as far as is known.
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
