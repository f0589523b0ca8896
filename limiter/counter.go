package limiter

import "math"

// advanceFixed clears a window that has ended.
func (t *tally) advanceFixed(now, length int64) {
	t.start = min(t.start, now)
	if now-t.start >= length {
		t.start, t.taken = 0, 0
	}
}

// advanceSliding advances to the window that contains now; windows are counted from time 0.
func (t *tally) advanceSliding(now, length int64) {
	number := now / length
	switch {
	case number == t.start+1:
		t.before, t.taken = t.taken, 0
	case number > t.start:
		t.before, t.taken = 0, 0
	}
	t.start = number
}

// usedSliding returns the weighted count at now: that of the current window, plus the part
// of the previous one that is within length, rounded up.
func (t *tally) usedSliding(now, length int64) int64 {
	switch number := now / length; {
	case number == t.start:
		return t.taken + weigh(t.before, number*length+length-now, length)
	case number == t.start+1:
		return weigh(t.taken, number*length+length-now, length)
	}
	return 0
}

// weigh returns n * rest / length, rounded up.
func weigh(n, rest, length int64) int64 {
	return int64(math.Ceil(float64(n) * (float64(rest) / float64(length))))
}

// waitSliding returns the time until at most count - cost is used: in this window as the
// previous one expires, or in the next one as this one does.
func (t *tally) waitSliding(now int64, l *Limit, cost int64) int64 {
	length, room := length(l), l.Rate.Count-cost
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

// giveBackSliding refunds up to n permits of the window with this number.
func (t *tally) giveBackSliding(number, n int64) int64 {
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

// epsilon is the tolerance for sums of fractions, in permits.
const epsilon = 1e-6

// owed returns the number of permits that have not returned at now.
func (t *tally) owed(now int64, l *Limit) float64 {
	return max(0, t.debt-float64(now-t.start)*float64(l.Rate.Count)/float64(length(l)))
}

func (t *tally) leftGCRA(now int64, l *Limit) int64 {
	return int64(math.Floor(float64(l.Most()) - t.owed(now, l) + epsilon))
}

// waitGCRA returns the time until cost permits are left.
func (t *tally) waitGCRA(now int64, l *Limit, cost int64) int64 {
	over := t.owed(now, l) + float64(cost) - float64(l.Most()) - epsilon
	at := now + max(1, int64(math.Ceil(over*float64(length(l))/float64(l.Rate.Count))))
	for at > now+1 && t.leftGCRA(at-1, l) >= cost {
		at--
	}
	for t.leftGCRA(at, l) < cost {
		at++
	}
	return at - now
}

func (t *tally) takeGCRA(now int64, l *Limit, cost int64) {
	owed := t.owed(now, l)
	if owed == 0 {
		t.before = now
	}
	t.debt, t.start = owed+float64(cost), now
}

// giveBackGCRA refunds permits taken at time at, unless all permits have returned since:
// those taken last return last.
func (t *tally) giveBackGCRA(now, at int64, c Claim) int64 {
	owed := t.owed(now, c.Limit)
	if owed == 0 || at < t.before {
		return 0
	}
	t.debt, t.start = max(0, owed-float64(c.Cost)), now
	return c.Cost
}
