package limiter

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// MaxKeyGuardWindow is the longest window that a Guard counts over.
const MaxKeyGuardWindow = time.Hour

// KeyGuardOptions bound a Guard. The zero value means the defaults.
type KeyGuardOptions struct {
	// MaxKeys is how many keys are known at a time; 1,000,000 when zero, which
	// take about 50 MB. Beyond it those that were not seen for longest are
	// forgotten, so that whoever keeps coming stays known in any flood.
	MaxKeys int
	// MaxSources is how many sources are counted at a time; 200,000 when zero,
	// which take about 20 MB. Beyond it the counts that began first are
	// forgotten: so many sources are a flood that no count of each can stop, and
	// it shall not shut out the others.
	MaxSources int
	// TTL is how long a key is known after it was seen last, at least; one
	// day when zero.
	TTL time.Duration
	// Clock is time.Now when nil.
	Clock func() time.Time
}

// A KeyGuard bounds how many requests with new keys one source, a client's address
// for example, may send in a window: whoever invents a key for each request is
// stopped before the keys cost anything elsewhere. A key that was seen recently is
// not new, whoever brings it.
//
// A source's window begins with its first new key; over the border between two
// windows it may bring twice as many in a short time. What is known and counted
// is this process's own. It is safe for concurrent use; a request with known keys
// costs about 100 ns.
type KeyGuard struct {
	clock   func() time.Time
	known   []guardShard[struct{}]    // by key
	sources []guardShard[newKeyCount] // by source
}

// newKeyCount are the new keys of one source.
type newKeyCount struct {
	windowStart int64 // when its window began, in milliseconds
	count       int64
}

// A guardShard of a Guard has a lock of its own.
type guardShard[V any] struct {
	mu   sync.Mutex // guards what follows; that of a source goes before those of keys
	seen agingMap[V]
}

// guardShards is how many parts there are of each kind.
const guardShards = 64

// A KeyDecision is what a Guard says of a request.
type KeyDecision struct {
	New     bool          // one or more of its keys are
	Refused bool          // its source has brought too many; the keys stay new
	Wait    time.Duration // when Refused: until it may bring one again
}

// NewKeyGuard makes a Guard that knows no key.
func NewKeyGuard(o KeyGuardOptions) *KeyGuard {
	if o.MaxKeys <= 0 {
		o.MaxKeys = 1_000_000
	}
	if o.MaxSources <= 0 {
		o.MaxSources = 200_000
	}
	if o.TTL <= 0 {
		o.TTL = 24 * time.Hour
	}
	if o.Clock == nil {
		o.Clock = monotonicClock(time.Now())
	}
	return &KeyGuard{
		clock:   o.Clock,
		known:   newGuardShards[struct{}](o.MaxKeys, o.TTL),
		sources: newGuardShards[newKeyCount](o.MaxSources, MaxKeyGuardWindow),
	}
}

func newGuardShards[V any](most int, life time.Duration) []guardShard[V] {
	parts := make([]guardShard[V], guardShards)
	for i := range parts {
		parts[i].seen = newAgingMap[V](most/guardShards, life.Milliseconds())
	}
	return parts
}

// CheckKeyGuard returns an error that wraps ErrInvalidRate if no Guard can keep rate, and
// says what to write instead.
func CheckKeyGuard(rate Rate) error {
	if err := rate.Check(); err != nil {
		return err
	}
	if rate.Window > MaxKeyGuardWindow {
		return fmt.Errorf("%w: new keys are counted over an hour at most; write for example 1000/1m", ErrInvalidRate)
	}
	return nil
}

// Known reports whether none of the keys is new. They stay known for longer by it.
func (g *KeyGuard) Known(keys ...Key) bool {
	now := g.clock().UnixMilli()
	return !slices.ContainsFunc(keys, func(k Key) bool { return !g.refresh(now, k) })
}

// Admit asks whether source may send one request with these keys, by a rate that
// CheckGuard has nothing against. If one or more of them are new, it counts once,
// and all are known from then on. What is refused counts for nothing.
func (g *KeyGuard) Admit(rate Rate, source Key, keys ...Key) KeyDecision {
	if g.Known(keys...) {
		return KeyDecision{}
	}
	now := g.clock().UnixMilli()
	p := &g.sources[source[0]%guardShards]
	p.mu.Lock() // so that what a source brings several times at once counts once
	defer p.mu.Unlock()
	if g.Known(keys...) {
		return KeyDecision{}
	}
	m, _ := p.seen.get(now, source)
	over := m.windowStart + rate.Window.Milliseconds()
	switch {
	case now >= over || now < m.windowStart: // or the clock was set back
		m = newKeyCount{windowStart: now}
	case m.count >= rate.Count:
		return KeyDecision{New: true, Refused: true, Wait: millis(over - now)}
	}
	m.count++
	p.seen.put(now, source, m)
	for _, k := range keys {
		g.add(now, k)
	}
	return KeyDecision{New: true}
}

func (g *KeyGuard) refresh(now int64, k Key) bool {
	p := &g.known[k[0]%guardShards]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.touch(now, k)
}

func (g *KeyGuard) add(now int64, k Key) {
	p := &g.known[k[0]%guardShards]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.put(now, k, struct{}{})
}
