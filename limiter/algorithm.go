package limiter

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// An Algorithm determines how a rate is enforced: how many permits any window can hold,
// when permits become available again, and how much state a key needs.
type Algorithm uint8

// The algorithms. "Any window" means any period of the length Rate.Window, measured by
// the store's clock.
const (
	// TokenBucket makes each permit available again exactly one window after it was
	// taken, so that any window holds at most Rate.Count permits. A key has up to 128
	// entries.
	TokenBucket Algorithm = iota
	// FixedWindow counts permits from the first one on and resets the count when the
	// window is over. It may grant up to 2 x Rate.Count permits around the end of a
	// window. It is the cheapest algorithm.
	FixedWindow
	// SlidingWindow adds the count of the current fixed window and the part of the
	// previous one's that still overlaps the sliding window. It mostly grants close to
	// Rate.Count, but up to 2 x Rate.Count when a burst at the very end of a quiet window
	// is followed by steady load. A key has two counters.
	SlidingWindow
	// GCRA, the generic cell rate algorithm, makes Rate.Count permits available evenly
	// over each window, and lets up to Burst permits be taken at once: at most Burst +
	// Rate.Count in any window. A key has one number, which does not tell which permits
	// have become available again. So a late refund returns all of its permits, including
	// the part that was available already.
	GCRA
	// Concurrent limits the number of permits that are held at the same time to
	// Rate.Count. Refund ends a hold, and Renew restarts its lease. A permit that is
	// neither refunded nor renewed expires after the lease, Rate.Window.
	Concurrent
	// Distinct limits the number of different values, Claim.Value, that a key is used
	// with to Rate.Count in any window. A value is active until one window after its last
	// use, and using an active value again takes no permit. A key has up to 3 entries for
	// each value.
	Distinct
	// Cooldown grants one permit at a time, and the next one only after a pause that
	// grows: Limit.Steps[0] after the first permit, Steps[1] after the second and so on;
	// the last step repeats. Rate.Window after the last permit the steps start again from
	// the first. Rate.Count is 1. A key has up to 32 entries.
	Cooldown
	// SlidingLog has the same guarantees as TokenBucket, but is stored in one packed
	// string: about half the cost in Redis, and not compatible with Redisson. In a Memory
	// the two are the same.
	SlidingLog
	// Conversion counts permits until AdminStore.Return returns them, and grants more the more
	// subjects do: any window holds at most Rate.Count + V x (100-p)/p permits that were not
	// returned, where p is Limit.Conversion and V the number of subjects with a return in it. The
	// limit must be Noted. A key has up to 62 buckets of both.
	Conversion

	// NumAlgorithms is the number of algorithms.
	NumAlgorithms
)

// traits are what an algorithm is, for all that treats algorithms differently without
// being part of one.
type traits struct {
	name       string // in configuration files
	sign       byte   // in the names of keys in Redis, with the version of the layout
	maxLog     int64  // the largest number of entries of a log; 0: counters instead of a log
	isBucket   bool   // TokenBucket and what has its guarantees: entries of the log may be merged
	isRedisson bool   // has the keys of Redisson in Redis
	isPacked   bool   // has one string for each key in Redis
	mayDouble  bool   // may grant 2 x Rate.Count permits in one window
	isNumbered bool   // its windows are numbered from time 0
	hasBurst   bool   // uses Limit.Burst
	hasLeases  bool   // permits are held until they are refunded, and can be renewed
	hasValues  bool   // counts the values of claims
	hasSteps   bool   // uses Limit.Steps
	hasBuckets bool   // counts permits and confirmed subjects in buckets, and uses Limit.Conversion
}

// unbounded is the largest number of entries of logs that the rate bounds.
const unbounded = math.MaxInt64

// table has the traits of each algorithm, and none for unknown ones.
var table = [NumAlgorithms + 1]traits{
	TokenBucket:   {name: "token_bucket", sign: '0', maxLog: fullLog, isBucket: true, isRedisson: true},
	FixedWindow:   {name: "fixed_window", sign: '1', isPacked: true, mayDouble: true},
	SlidingWindow: {name: "sliding_window", sign: '2', isPacked: true, mayDouble: true, isNumbered: true},
	GCRA:          {name: "gcra", sign: '3', isPacked: true, hasBurst: true},
	Concurrent:    {name: "concurrent", sign: '4', maxLog: unbounded, hasLeases: true},
	Distinct:      {name: "distinct", sign: '5', maxLog: unbounded, hasValues: true},
	Cooldown:      {name: "cooldown", sign: 'c', isPacked: true, maxLog: maxCooldownEntries, hasSteps: true},
	SlidingLog:    {name: "sliding_log", sign: '7', isPacked: true, maxLog: fullLog, isBucket: true},
	Conversion:    {name: "conversion", sign: 'v', isPacked: true, maxLog: maxConversionLog, hasBuckets: true},
}

func (a Algorithm) traits() *traits { return &table[min(a, NumAlgorithms)] }

// String returns the name of a in configuration files.
func (a Algorithm) String() string {
	if name := a.traits().name; name != "" {
		return name
	}
	return fmt.Sprintf("algorithm %d", uint8(a))
}

// ParseAlgorithm parses a name that String returns. Errors wrap ErrInvalidLimit.
func ParseAlgorithm(name string) (Algorithm, error) {
	for a := range NumAlgorithms {
		if a.String() == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("%w: unknown algorithm %q; write token_bucket, sliding_log, fixed_window, sliding_window, gcra, concurrent, distinct, cooldown or conversion", ErrInvalidLimit, name)
}

// Sign returns the character that identifies a, and the version of its layout, in the
// names of keys in Redis. A new layout needs a new one.
func (a Algorithm) Sign() byte { return a.traits().sign }

// IsRedisson reports whether a has the keys and the data format of a Redisson
// RRateLimiter in Redis, so that claims may have a Claim.RedissonName.
func (a Algorithm) IsRedisson() bool { return a.traits().isRedisson }

// IsPacked reports whether the state of a key is one string in Redis.
func (a Algorithm) IsPacked() bool { return a.traits().isPacked }

// MayDouble reports whether up to 2 x Rate.Count permits may be granted in one window.
func (a Algorithm) MayDouble() bool { return a.traits().mayDouble }

// HasBurst reports whether a uses Limit.Burst.
func (a Algorithm) HasBurst() bool { return a.traits().hasBurst }

// HasLeases reports whether permits are held until they are refunded or their lease ends,
// so that Renew applies.
func (a Algorithm) HasLeases() bool { return a.traits().hasLeases }

// HasLog reports whether a keeps permits as log entries rather than in counters.
func (a Algorithm) HasLog() bool { return a.traits().maxLog > 0 }

// IsNumbered reports whether the windows of a are numbered from time 0, not from a first permit.
func (a Algorithm) IsNumbered() bool { return a.traits().isNumbered }

// HasValues reports whether a counts the values of claims, Claim.Value.
func (a Algorithm) HasValues() bool { return a.traits().hasValues }

// HasSteps reports whether a uses Limit.Steps.
func (a Algorithm) HasSteps() bool { return a.traits().hasSteps }

// HasConversion reports whether a uses Limit.Conversion: returns are part of its promise.
func (a Algorithm) HasConversion() bool { return a.traits().hasBuckets }

// isTokenBucket reports whether a has the guarantees of TokenBucket, so that its log of
// permits may be merged.
func (a Algorithm) isTokenBucket() bool { return a.traits().isBucket }

// countsPermits reports whether a only needs the number of taken permits, and not their
// identities.
func (a Algorithm) countsPermits() bool { return !a.HasLeases() && !a.HasValues() && !a.HasSteps() }

// HasDebt reports whether AdminStore.Charge takes more of a than is left.
func (a Algorithm) HasDebt() bool { return a.countsPermits() && !a.HasConversion() }

// Capacity returns the number of permits of an unused key, which is also the largest Cost
// of a claim: Burst if it is set, otherwise Rate.Count.
func (l *Limit) Capacity() int64 {
	if l.Burst > 0 && l.Algorithm.HasBurst() {
		return l.Burst
	}
	return l.Rate.Count
}

// Horizon returns how long after its last permit a key certainly has no state left. No
// claim has to wait longer, unless the key is banned.
func (l *Limit) Horizon() time.Duration {
	switch a := l.Algorithm.traits(); {
	case a.isNumbered: // two windows count
		return 2 * l.Rate.Window
	case a.hasBurst:
		return l.horizonBurst()
	case a.hasBuckets:
		return l.Rate.Window + millis(bucketMillis(l)) // then its bucket has left
	}
	return l.Rate.Window
}

func windowMillis(l *Limit) int64 { return l.Rate.Window.Milliseconds() }

// checkAlgorithm checks the fields that depend on the algorithm. The rate must be valid.
func (l *Limit) checkAlgorithm() error {
	switch a := l.Algorithm.traits(); {
	case l.Algorithm >= NumAlgorithms:
		return fmt.Errorf("%w: %s has the unknown algorithm %d", ErrInvalidLimit, l.Name, l.Algorithm)
	case l.Burst != 0 && !a.hasBurst:
		return fmt.Errorf("%w: %s has a burst; only gcra uses one", ErrInvalidLimit, l.Name)
	case len(l.Steps) > 0 && !a.hasSteps:
		return fmt.Errorf("%w: %s has steps; only cooldown uses them", ErrInvalidLimit, l.Name)
	case l.Conversion != 0 && !a.hasBuckets:
		return fmt.Errorf("%w: %s has a conversion; only the algorithm conversion uses one", ErrInvalidLimit, l.Name)
	case a.hasBurst:
		return l.checkBurst()
	case a.hasLeases && l.Rate.Count > MaxConcurrent:
		return fmt.Errorf("%w: %s allows %d concurrent permits; the maximum is %d", ErrInvalidLimit, l.Name, l.Rate.Count, MaxConcurrent)
	case a.hasValues && l.Rate.Count > MaxDistinct:
		return fmt.Errorf("%w: %s allows %d different values; the maximum is %d", ErrInvalidLimit, l.Name, l.Rate.Count, MaxDistinct)
	case a.hasSteps:
		return l.checkCooldown()
	case a.hasBuckets:
		return l.checkConversion()
	}
	return nil
}

// MaxConcurrent is the largest Rate.Count of a Concurrent limit. Each permit that is held
// is an entry of its own.
const MaxConcurrent = 10_000

// The log of a Concurrent limit has an entry for each held permit. It is the permit log,
// but its entries are never merged, and a refund removes one without a mark.

// renew changes the time of the permits under id to now, and reports whether they were
// still held.
func (s *keyState) renew(now int64, id [16]byte) bool {
	n := s.release(id)
	if n == 0 {
		return false
	}
	s.add(now, id, n)
	return true
}

// limitNumbers are the numbers of limits in one Memory. Limits with the same name, such as
// a limit and its changed version, have the same number.
type limitNumbers struct {
	mu    sync.Mutex                        // guards writes of names
	names atomic.Pointer[map[string]uint32] // set by NewMemory
}

// A limitNumber is the number that a limit has in one Memory.
type limitNumber struct {
	of     *limitNumbers
	number uint32
}

// number returns the number of l. It does not allocate for a known limit. A prepared limit
// remembers its number in the Memory that asks first; the others look up its name.
func (n *limitNumbers) number(l *Limit) uint32 {
	if !l.isPrepared() {
		return n.named(l.Name)
	}
	known := l.prepared.number.Load()
	if known == nil {
		known = &limitNumber{n, n.named(l.Name)}
		l.prepared.number.CompareAndSwap(nil, known)
	}
	if known.of != n {
		return n.named(l.Name)
	}
	return known.number
}

// named returns the number of the limits with this name.
func (n *limitNumbers) named(name string) uint32 {
	if number, ok := (*n.names.Load())[name]; ok {
		return number
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	names := maps.Clone(*n.names.Load())
	if number, ok := names[name]; ok {
		return number
	}
	number := uint32(len(names))
	names[name] = number
	n.names.Store(&names)
	return number
}
