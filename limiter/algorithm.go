package limiter

import (
	"fmt"
	"math"
	"time"
)

// An Algorithm is an algorithm for a rate limit.
type Algorithm uint8

// The algorithms, and the maximum number of permits that each grants in any period as long
// as the window, by the store's clock:
const (
	// TokenBucket returns a permit exactly one window after it was taken: at most
	// Rate.Count permits in any window. Up to 128 entries per key.
	TokenBucket Algorithm = iota
	// FixedWindow counts from the first permit on and resets the count when the window
	// ends: up to 2 x Rate.Count across a window boundary. It is the cheapest.
	FixedWindow
	// SlidingWindow weighs the count of the previous fixed window by the part of it that is
	// still within the sliding window: usually about Rate.Count, but up to 2 x if a burst
	// at the end of a quiet window is followed by steady traffic. Two counters per key.
	SlidingWindow
	// GCRA (generic cell rate algorithm) returns Rate.Count permits per window evenly, and
	// allows up to Burst at once: at most Burst + Rate.Count. One number per key, which
	// does not identify permits: a late refund returns all of its permits, also those that
	// have partly returned.
	GCRA
	// Concurrent limits the permits that are held at a time to Rate.Count. Refund releases
	// a permit, and Renew extends its lease; without either it returns after Rate.Window,
	// the lease. One entry per permit.
	Concurrent
	// Distinct limits the number of distinct values (Claim.Value) used with a key to
	// Rate.Count in any window. A value counts until one window after its last use; using
	// it again meanwhile takes no further permit. Up to 3 entries per value.
	Distinct
	// Cooldown grants one permit at a time, with an increasing interval until the next one:
	// Limit.Steps[0] after the first, Steps[1] after the second, and so on; the last step
	// repeats. The sequence starts over Rate.Window after the last permit. Rate.Count must
	// be 1. Up to 32 entries per key.
	Cooldown
	// SlidingLog has the same guarantees as TokenBucket and keeps its state in one packed
	// string: about half the cost in Redis, but it cannot be shared with Redisson. In
	// memory the two are the same.
	SlidingLog
)

// MaxDistinct is the maximum Rate.Count of a Distinct limit, and MaxSteps the maximum
// number of steps of a Cooldown.
const (
	MaxDistinct = 1000
	MaxSteps    = 30
)

// MaxConcurrent is the maximum Rate.Count of a Concurrent limit, which has one entry for
// each held permit.
const MaxConcurrent = 10_000

// String returns the name used in configurations.
func (a Algorithm) String() string {
	switch a {
	case TokenBucket:
		return "token_bucket"
	case FixedWindow:
		return "fixed_window"
	case SlidingWindow:
		return "sliding_window"
	case GCRA:
		return "gcra"
	case Concurrent:
		return "concurrent"
	case Distinct:
		return "distinct"
	case Cooldown:
		return "cooldown"
	case SlidingLog:
		return "sliding_log"
	}
	return fmt.Sprintf("algorithm %d", uint8(a))
}

// ParseAlgorithm parses the result of String. Errors wrap ErrLimit.
func ParseAlgorithm(name string) (Algorithm, error) {
	for a := TokenBucket; a <= SlidingLog; a++ {
		if a.String() == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("%w: no algorithm is called %q; write token_bucket, sliding_log, fixed_window, sliding_window, gcra, concurrent, distinct or cooldown", ErrLimit, name)
}

// log reports whether a keeps permits in a log that may be merged; it then has the
// guarantees of TokenBucket.
func (a Algorithm) log() bool { return a == TokenBucket || a == SlidingLog }

// Most returns the number of permits of a key without any taken, which is the maximum cost
// of a claim.
func (l *Limit) Most() int64 {
	if l.Algorithm == GCRA && l.Burst > 0 {
		return l.Burst
	}
	return l.Rate.Count
}

// Horizon returns the time after its last permit until a key certainly has no state left,
// which is also the longest possible wait.
func (l *Limit) Horizon() time.Duration {
	switch l.Algorithm {
	case SlidingWindow:
		return 2 * l.Rate.Window
	case GCRA:
		ms := math.Ceil(float64(l.Most()) * float64(l.Rate.Window.Milliseconds()) / float64(l.Rate.Count))
		return time.Duration(ms) * time.Millisecond
	}
	return l.Rate.Window
}

// checkAlgorithm checks the requirements of the algorithm for a limit with a valid rate.
func (l *Limit) checkAlgorithm() error {
	switch {
	case l.Algorithm > SlidingLog:
		return fmt.Errorf("%w: %s has the unknown algorithm %d", ErrLimit, l.Name, l.Algorithm)
	case l.Burst != 0 && l.Algorithm != GCRA:
		return fmt.Errorf("%w: %s has a burst; only gcra has one", ErrLimit, l.Name)
	case l.Burst < 0 || l.Burst > MaxCount:
		return fmt.Errorf("%w: %s has a burst of %d; it is 1 to %d", ErrLimit, l.Name, l.Burst, int64(MaxCount))
	case l.Algorithm == GCRA && float64(l.Most())/float64(l.Rate.Count) > float64(MaxWindow/l.Rate.Window):
		return fmt.Errorf("%w: %s takes more than 366d to let a burst of %d flow back", ErrLimit, l.Name, l.Burst)
	case l.Algorithm == Concurrent && l.Rate.Count > MaxConcurrent:
		return fmt.Errorf("%w: %s holds up to %d; the most is %d", ErrLimit, l.Name, l.Rate.Count, MaxConcurrent)
	case l.Algorithm == Distinct && l.Rate.Count > MaxDistinct:
		return fmt.Errorf("%w: %s allows %d different values; the most is %d", ErrLimit, l.Name, l.Rate.Count, MaxDistinct)
	}
	return l.checkSteps()
}
