package limiter

import "fmt"

// manyPermits is a count above which a token bucket merges so many entries that its
// exactness is seldom worth the cost.
const manyPermits = 10_000

// Advice describes in one sentence an unexpected cost or weakness of the algorithm of a
// valid limit, and what to choose instead; it returns "" if there is none.
func (l *Limit) Advice() string {
	switch {
	case l.Algorithm == TokenBucket && l.Rate.Count > manyPermits:
		return fmt.Sprintf("a token bucket of %s keeps up to 128 entries (4 KB) for each key; "+
			"sliding_log promises the same in half of that, gcra or sliding_window keep a number or two", l.Rate)
	case l.Algorithm == FixedWindow && l.Rate.Count > 1:
		return fmt.Sprintf("a fixed window of %s lets up to %d pass within moments, across the border of two windows; "+
			"token_bucket never does", l.Rate, 2*l.Rate.Count)
	case l.Algorithm == GCRA && l.Most() >= l.Rate.Count && l.Rate.Count > 1:
		return fmt.Sprintf("gcra of %s with a burst of %d lets up to %d pass in one window; "+
			"a burst of %d keeps it within a tenth of the rate", l.Rate, l.Most(), l.Rate.Count+l.Most(), max(1, l.Rate.Count/10))
	}
	return ""
}
