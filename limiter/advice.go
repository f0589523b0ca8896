package limiter

import "fmt"

// advisedMaxCount is the count above which Advice recommends another algorithm than a
// token bucket: its entries are merged so coarsely that it is hardly more exact than
// cheaper algorithms.
const advisedMaxCount = 10_000

// Advice returns one sentence about a property of the limit's algorithm that an operator
// may not expect, such as its memory cost or how many requests it lets through, and an
// alternative. It returns "" if there is nothing to say. The limit must be valid.
func (l *Limit) Advice() string {
	switch {
	case l.Algorithm == TokenBucket && l.Rate.Count > advisedMaxCount:
		return fmt.Sprintf("a token bucket of %s keeps up to 128 entries (4 KB) for each key; "+
			"sliding_log promises the same in half of that, gcra or sliding_window keep a number or two", l.Rate)
	case l.Algorithm == FixedWindow && l.Rate.Count > 1:
		return fmt.Sprintf("a fixed window of %s lets up to %d pass within moments, across the border of two windows; "+
			"token_bucket never does", l.Rate, 2*l.Rate.Count)
	case l.Algorithm == GCRA && l.Capacity() >= l.Rate.Count && l.Rate.Count > 1:
		return fmt.Sprintf("gcra of %s with a burst of %d lets up to %d pass in one window; "+
			"a burst of %d keeps it within a tenth of the rate", l.Rate, l.Capacity(), l.Rate.Count+l.Capacity(), max(1, l.Rate.Count/10))
	}
	return ""
}
