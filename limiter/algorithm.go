package limiter

import (
	"fmt"
	"math"
	"time"
)

// An Algorithm is a way to keep a rate.
type Algorithm uint8

// The algorithms. What each promises of any stretch of time as long as the
// window, by the store's clock:
const (
	// TokenBucket gives a permit back exactly one window after it was taken:
	// never more than Rate.Count permits in any window. Up to 128 entries a key.
	TokenBucket Algorithm = iota
	// FixedWindow counts from the first permit on and forgets all when the
	// window is over: up to 2 x Rate.Count across such a border. The cheapest.
	FixedWindow
	// SlidingWindow weighs the last fixed window by the part of it that still
	// lies in the sliding one: mostly close to Rate.Count, but up to 2 x when a
	// burst at the very end of a quiet window is followed by steady pressure.
	// Two counters.
	SlidingWindow
	// GCRA lets Rate.Count permits a window flow back evenly, and up to Burst be
	// taken at once: at most Burst + Rate.Count. One number, which does not know
	// whose permits have flowed back in part: a late refund gives all of its own
	// back, and so lets that part through once more.
	GCRA
	// Concurrent counts what is held: never more than Rate.Count permits at a
	// time. Refund gives one back when its work is over, Renew holds it on, and
	// without either it comes back after Rate.Window, its lease.
	Concurrent
	// Distinct counts the different values that a key was used with, Claim.Value:
	// never more than Rate.Count in any window. A value stands until one window
	// after its last use; while it stands, using it again costs nothing. Up to 3
	// entries a value.
	Distinct
	// Cooldown lets one permit through at a time, and the next one only after a
	// pause that grows: Limit.Steps[0] after the first, Steps[1] after the second,
	// and so on, the last step again and again. Rate.Window after the last permit
	// the key begins again; Rate.Count is 1. Up to 32 entries.
	Cooldown
	// SlidingLog promises what TokenBucket does, and keeps it in one packed string:
	// about half the cost in Redis, but nothing that Redisson could share. In memory
	// the two are the same.
	SlidingLog
)

// MaxDistinct is the largest Rate.Count of a Distinct limit, and MaxSteps how many
// steps a Cooldown may have.
const (
	MaxDistinct = 1000
	MaxSteps    = 30
)

// MaxConcurrent is the largest Rate.Count of a Concurrent limit: each permit that
// is held is an entry of its own.
const MaxConcurrent = 10_000

// String is the name that a configuration uses.
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

// ParseAlgorithm reads what String writes. Errors wrap ErrInvalidLimit.
func ParseAlgorithm(name string) (Algorithm, error) {
	for a := TokenBucket; a <= SlidingLog; a++ {
		if a.String() == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("%w: no algorithm is called %q; write token_bucket, sliding_log, fixed_window, sliding_window, gcra, concurrent, distinct or cooldown", ErrInvalidLimit, name)
}

// isTokenBucket reports whether a keeps permits in a log that may be merged: then it promises
// what TokenBucket does.
func (a Algorithm) isTokenBucket() bool { return a == TokenBucket || a == SlidingLog }

// Capacity is how many permits are left to a key of which nothing was taken, and so
// the most that one claim may ask for.
func (l *Limit) Capacity() int64 {
	if l.Algorithm == GCRA && l.Burst > 0 {
		return l.Burst
	}
	return l.Rate.Count
}

// Horizon is how long after its last permit a key is surely as if nothing had
// been taken, and so the longest wait of any claim.
func (l *Limit) Horizon() time.Duration {
	switch l.Algorithm {
	case SlidingWindow:
		return 2 * l.Rate.Window
	case GCRA:
		ms := math.Ceil(float64(l.Capacity()) * float64(l.Rate.Window.Milliseconds()) / float64(l.Rate.Count))
		return time.Duration(ms) * time.Millisecond
	}
	return l.Rate.Window
}

// checkAlgorithm checks what the algorithm demands of a limit whose rate is good.
func (l *Limit) checkAlgorithm() error {
	switch {
	case l.Algorithm > SlidingLog:
		return fmt.Errorf("%w: %s has the unknown algorithm %d", ErrInvalidLimit, l.Name, l.Algorithm)
	case l.Burst != 0 && l.Algorithm != GCRA:
		return fmt.Errorf("%w: %s has a burst; only gcra has one", ErrInvalidLimit, l.Name)
	case l.Burst < 0 || l.Burst > MaxCount:
		return fmt.Errorf("%w: %s has a burst of %d; it is 1 to %d", ErrInvalidLimit, l.Name, l.Burst, int64(MaxCount))
	case l.Algorithm == GCRA && float64(l.Capacity())/float64(l.Rate.Count) > float64(MaxWindow/l.Rate.Window):
		return fmt.Errorf("%w: %s takes more than 366d to let a burst of %d flow back", ErrInvalidLimit, l.Name, l.Burst)
	case l.Algorithm == Concurrent && l.Rate.Count > MaxConcurrent:
		return fmt.Errorf("%w: %s holds up to %d; the most is %d", ErrInvalidLimit, l.Name, l.Rate.Count, MaxConcurrent)
	case l.Algorithm == Distinct && l.Rate.Count > MaxDistinct:
		return fmt.Errorf("%w: %s allows %d different values; the most is %d", ErrInvalidLimit, l.Name, l.Rate.Count, MaxDistinct)
	}
	return l.checkSteps()
}
