package limiter

import "math"

// advanceFixed forgets a window that is over.
func (t *keyState) advanceFixed(now, length int64) {
	t.start = min(t.start, now)
	if now-t.start >= length {
		t.start, t.taken = 0, 0
	}
}

// advanceSliding moves on to the window of now, counted from time 0.
func (t *keyState) advanceSliding(now, length int64) {
	number := now / length
	switch {
	case number == t.start+1:
		t.before, t.taken = t.taken, 0
	case number > t.start:
		t.before, t.taken = 0, 0
	}
	t.start = number
}

// usedSliding is what counts at now: the window of now, and of the one before
// the part that lies less than a length back, rounded up.
func (t *keyState) usedSliding(now, length int64) int64 {
	switch number := now / length; {
	case number == t.start:
		return t.taken + scaleUp(t.before, number*length+length-now, length)
	case number == t.start+1:
		return scaleUp(t.taken, number*length+length-now, length)
	}
	return 0
}

// scaleUp is n by the part that rest is of length, rounded up.
func scaleUp(n, rest, length int64) int64 {
	return int64(math.Ceil(float64(n) * (float64(rest) / float64(length))))
}

// waitSliding is the time until no more than count - cost is used: still in this
// window while the one before fades, or in the next while this one does.
func (t *keyState) waitSliding(now int64, l *Limit, cost int64) int64 {
	length, room := windowMillis(l), l.Rate.Count-cost
	fading, border, free := t.before, (t.start+1)*length, room-t.taken
	if t.taken > room {
		fading, border, free = t.taken, border+length, room
	}
	at := border - int64(float64(max(0, free))*float64(length)/float64(max(1, fading)))
	at = max(at, now+1)
	for at > now+1 && t.usedSliding(at-1, length) <= room {
		at--
	}
	for t.usedSliding(at, length) > room {
		at++
	}
	return at - now
}

// refundSliding takes up to n permits out of the window of that number.
func (t *keyState) refundSliding(number, n int64) int64 {
	from := &t.taken
	switch number {
	case t.start:
	case t.start - 1:
		from = &t.before
	default:
		return 0
	}
	n = min(n, *from)
	*from -= n
	return n
}

// epsilon is what sums of fractions may be wrong by, in permits.
const epsilon = 1e-6

// debtAt is how many permits have not flowed back at now.
func (t *keyState) debtAt(now int64, l *Limit) float64 {
	return max(0, t.debt-float64(now-t.start)*float64(l.Rate.Count)/float64(windowMillis(l)))
}

func (t *keyState) remainingGCRA(now int64, l *Limit) int64 {
	return int64(math.Floor(float64(l.Capacity()) - t.debtAt(now, l) + epsilon))
}

// waitGCRA is the time until so many permits have flowed back that cost are left.
func (t *keyState) waitGCRA(now int64, l *Limit, cost int64) int64 {
	over := t.debtAt(now, l) + float64(cost) - float64(l.Capacity()) - epsilon
	at := now + max(1, int64(math.Ceil(over*float64(windowMillis(l))/float64(l.Rate.Count))))
	for at > now+1 && t.remainingGCRA(at-1, l) >= cost {
		at--
	}
	for t.remainingGCRA(at, l) < cost {
		at++
	}
	return at - now
}

func (t *keyState) takeGCRA(now int64, l *Limit, cost int64) {
	owed := t.debtAt(now, l)
	if owed == 0 {
		t.before = now
	}
	t.debt, t.start = owed+float64(cost), now
}

// refundGCRA gives back permits of the time at, if anything has been owed ever
// since: what was taken last flows back last.
func (t *keyState) refundGCRA(now, at int64, c Claim) int64 {
	owed := t.debtAt(now, c.Limit)
	if owed == 0 || at < t.before {
		return 0
	}
	t.debt, t.start = max(0, owed-float64(c.Cost)), now
	return c.Cost
}
