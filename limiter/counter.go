package limiter

import "math"

// advanceFixed resets the count if the window is over.
func (t *keyState) advanceFixed(now, length int64) {
	t.start = min(t.start, now)
	if now-t.start >= length {
		t.start, t.taken = 0, 0
	}
}

// advanceSliding moves to the window of now. Windows are numbered from time 0.
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

// usedSliding returns the weighted count at now: the count of the current window, plus
// that of the previous window scaled by the part that overlaps the sliding window,
// rounded up.
func (t *keyState) usedSliding(now, length int64) int64 {
	switch number := now / length; {
	case number == t.start:
		return t.taken + scaleUp(t.before, number*length+length-now, length)
	case number == t.start+1:
		return scaleUp(t.taken, number*length+length-now, length)
	}
	return 0
}

// scaleUp returns n * part / length, rounded up.
func scaleUp(n, part, length int64) int64 {
	return int64(math.Ceil(float64(n) * (float64(part) / float64(length))))
}

// waitSliding returns the time until at most Rate.Count - cost permits are used. That is
// in the current window, while the weight of the previous one decreases, or in the next
// one, while the weight of the current one does.
func (t *keyState) waitSliding(now int64, l *Limit, cost int64) int64 {
	length, maxUsed := windowMillis(l), l.Rate.Count-cost
	fading, border, free := t.before, (t.start+1)*length, maxUsed-t.taken
	if t.taken > maxUsed {
		fading, border, free = t.taken, border+length, maxUsed
	}
	at := border - int64(float64(max(0, free))*float64(length)/float64(max(1, fading)))
	at = max(at, now+1)
	for at > now+1 && t.usedSliding(at-1, length) <= maxUsed {
		at--
	}
	for t.usedSliding(at, length) > maxUsed {
		at++
	}
	return at - now
}

// refundSliding returns up to n permits to the window with this number.
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

// epsilon is the tolerance for rounding errors of sums of fractions, in permits.
const epsilon = 1e-6

// debtAt returns the number of permits that are not available again at now.
func (t *keyState) debtAt(now int64, l *Limit) float64 {
	return max(0, t.debt-float64(now-t.start)*float64(l.Rate.Count)/float64(windowMillis(l)))
}

func (t *keyState) remainingGCRA(now int64, l *Limit) int64 {
	return int64(math.Floor(float64(l.Capacity()) - t.debtAt(now, l) + epsilon))
}

// waitGCRA returns the time until cost permits are available.
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

// refundGCRA returns permits that were taken at the time at, if the debt has not been
// zero since: permits that were taken last become available last.
func (t *keyState) refundGCRA(now, at int64, c Claim) int64 {
	owed := t.debtAt(now, c.Limit)
	if owed == 0 || at < t.before {
		return 0
	}
	t.debt, t.start = max(0, owed-float64(c.Cost)), now
	return c.Cost
}
