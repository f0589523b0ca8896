package limiter

// A tally is the state of one key under one limit. Times are milliseconds, and always
// arguments. The zero tally has no permits taken.
type tally struct {
	// The log of TokenBucket, SlidingLog, Concurrent, Distinct and Cooldown. The other
	// algorithms use taken as their counter, and entries only as records of refunds.
	window
	algorithm Algorithm
	counter
	banned int64 // end of a ban
}

// A counter is the state of an algorithm without a log.
type counter struct {
	start  int64   // FixedWindow: start of the window. SlidingWindow: its number. GCRA: time of debt
	before int64   // SlidingWindow: permits of the previous window. GCRA: last time without debt
	debt   float64 // GCRA: permits that have not returned
}

// advance updates t to now. The state of another algorithm is cleared.
func (t *tally) advance(now int64, l *Limit) {
	if t.algorithm != l.Algorithm {
		*t = tally{algorithm: l.Algorithm, banned: t.banned, window: window{floor: now - 1}}
	}
	if l.Algorithm == Cooldown {
		t.advancePauses(now, length(l))
		return
	}
	t.window.advance(now, l.Horizon().Milliseconds())
	switch l.Algorithm {
	case FixedWindow:
		t.advanceFixed(now, length(l))
	case SlidingWindow:
		t.advanceSliding(now, length(l))
	case GCRA:
		t.start = min(t.start, now)
	}
}

// left returns the number of permits left at now; t must be advanced. It is negative if
// more are taken than a lowered count allows.
func (t *tally) left(now int64, l *Limit) int64 {
	switch l.Algorithm {
	case SlidingWindow:
		return l.Rate.Count - t.usedSliding(now, length(l))
	case GCRA:
		return t.leftGCRA(now, l)
	case Cooldown:
		if t.pause(now, l) > 0 {
			return 0
		}
		return 1
	}
	return t.window.left(l.Rate.Count)
}

// wait returns the exact time until cost permits are left; t must be advanced.
func (t *tally) wait(now int64, l *Limit, cost int64) int64 {
	if t.left(now, l) >= cost {
		return 0
	}
	switch l.Algorithm {
	case FixedWindow:
		return t.start + length(l) - now
	case SlidingWindow:
		return t.waitSliding(now, l, cost)
	case GCRA:
		return t.waitGCRA(now, l, cost)
	case Cooldown:
		return t.pause(now, l)
	}
	return t.window.wait(now, length(l), l.Rate.Count, cost)
}

// take takes the permits of c, whatever is left; t must be advanced.
func (t *tally) take(now int64, c Claim, id [16]byte) {
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
			t.merge(length(l))
		}
		t.window.take(now, id, cost)
	case Concurrent:
		t.window.take(now, id, cost)
	case Distinct:
		t.use(now, id, c.Value)
	case Cooldown:
		t.takePause(now, id)
	}
}

// refund refunds the permits that p took for c, and returns their number: 0 if they have
// already returned. t must be advanced.
func (t *tally) refund(now int64, p Permit, c Claim) int64 {
	at := p.At.UnixMilli()
	switch c.Limit.Algorithm {
	case TokenBucket, SlidingLog:
		return t.window.refund(now, p, c)
	case Concurrent, Cooldown:
		return t.release(p.ID)
	case Distinct:
		return t.unuse(p.ID)
	}
	if at <= now-c.Limit.Horizon().Milliseconds() || !t.unmarked(at, p.ID) {
		return 0
	}
	n := t.giveBack(now, at, c)
	if n > 0 {
		t.remember(at, p.ID)
	}
	return n
}

// giveBack subtracts from the counter what is still counted of cost permits taken at time
// at.
func (t *tally) giveBack(now, at int64, c Claim) int64 {
	switch c.Limit.Algorithm {
	case FixedWindow:
		if t.start == 0 || at < t.start {
			return 0
		}
		n := min(c.Cost, t.taken)
		t.taken -= n
		return n
	case SlidingWindow:
		return t.giveBackSliding(at/length(c.Limit), c.Cost)
	case GCRA:
		return t.giveBackGCRA(now, at, c)
	}
	return 0
}

// grant returns n permits of l to the key, the latest ones first.
func (t *tally) grant(now int64, l *Limit, n int64) {
	switch l.Algorithm {
	case TokenBucket, SlidingLog, Concurrent:
		t.window.grant(n)
	case Distinct:
		t.grantValues(n)
	case Cooldown:
		t.grantPauses(n)
	case FixedWindow:
		t.taken -= min(n, t.taken)
	case SlidingWindow:
		n -= t.giveBackSliding(t.start, n)
		t.giveBackSliding(t.start-1, n)
	case GCRA:
		t.debt, t.start = max(0, t.owed(now, l)-float64(n)), now
	}
}

// until returns the time after which the key has no state left, as far as is known.
func (t *tally) until(l *Limit) int64 {
	return max(t.banned, t.last(l)+l.Horizon().Milliseconds())
}

// last returns the time of the last change of t, as far as is known.
func (t *tally) last(l *Limit) int64 {
	last := t.newest()
	switch l.Algorithm {
	case FixedWindow, GCRA:
		last = max(last, t.start)
	case SlidingWindow:
		last = max(last, t.start*length(l))
	}
	return last
}

func length(l *Limit) int64 { return l.Rate.Window.Milliseconds() }
