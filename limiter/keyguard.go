package limiter

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// MaxKeyGuardWindow is the maximum window of a KeyGuard.
const MaxKeyGuardWindow = time.Hour

// KeyGuardOptions configure a KeyGuard. The zero value means the defaults.
type KeyGuardOptions struct {
	// MaxKeys is the maximum number of known keys; 1,000,000 if zero, which take about 50
	// MB. Beyond it, the keys that were not seen for longest are dropped, so that active
	// clients stay known in a flood.
	MaxKeys int
	// MaxSources is the maximum number of sources that are counted; 200,000 if zero, which
	// take about 20 MB. Beyond it, the oldest counts are dropped: counts per source cannot
	// stop a flood from so many sources, and must not shut out others.
	MaxSources int
	// TTL is the minimum time for which a key is known after it was last seen; one day if
	// zero.
	TTL time.Duration
	// Clock is the clock; time.Now if nil.
	Clock func() time.Time
}

// A KeyGuard limits how many requests with new keys one source, such as a client address,
// may send in a window, to stop clients that use a new key for every request. A key that
// was seen recently, from any source, is not new.
//
// The window of a source begins with its first new key; across a window boundary twice the
// rate is possible. The state is in this process only. A KeyGuard is safe for concurrent
// use; a request with known keys costs about 100 ns.
type KeyGuard struct {
	clock   func() time.Time
	known   []part[struct{}]    // by key
	sources []part[newKeyCount] // by source
}

// newKeyCount counts the new keys of one source.
type newKeyCount struct {
	since int64 // when its window began, in milliseconds
	count int64
}

// A part of a KeyGuard has its own lock.
type part[V any] struct {
	mu   sync.Mutex // guards what follows; the lock of a source is taken before those of keys
	seen agingMap[V]
}

// guardParts is the number of parts of each kind.
const guardParts = 64

// A KeyDecision is the result of a KeyGuard for a request.
type KeyDecision struct {
	New     bool          // at least one key is new
	Refused bool          // the source has sent too many; the keys stay new
	Wait    time.Duration // if Refused: until the source may send a new key again
}

// NewKeyGuard returns a KeyGuard without known keys.
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
		known:   newParts[struct{}](o.MaxKeys, o.TTL),
		sources: newParts[newKeyCount](o.MaxSources, MaxKeyGuardWindow),
	}
}

func newParts[V any](most int, life time.Duration) []part[V] {
	parts := make([]part[V], guardParts)
	for i := range parts {
		parts[i].seen = newAgingMap[V](most/guardParts, life.Milliseconds())
	}
	return parts
}

// CheckKeyGuard returns an error that wraps ErrRate if a KeyGuard cannot enforce rate; it
// contains what to write instead.
func CheckKeyGuard(rate Rate) error {
	if err := rate.Check(); err != nil {
		return err
	}
	if rate.Window > MaxKeyGuardWindow {
		return fmt.Errorf("%w: new keys are counted over an hour at most; write for example 1000/1m", ErrRate)
	}
	return nil
}

// Knows reports whether all keys are known, and extends the time for which they are.
func (g *KeyGuard) Knows(keys ...Key) bool {
	now := g.clock().UnixMilli()
	return !slices.ContainsFunc(keys, func(k Key) bool { return !g.knows(now, k) })
}

// Admit decides whether source may send a request with these keys, by a rate that
// CheckKeyGuard accepts. If at least one key is new, the request counts once, and all its
// keys become known. A refused request changes nothing.
func (g *KeyGuard) Admit(rate Rate, source Key, keys ...Key) KeyDecision {
	if g.Knows(keys...) {
		return KeyDecision{}
	}
	now := g.clock().UnixMilli()
	p := &g.sources[source[0]%guardParts]
	p.mu.Lock() // concurrent requests of a source with the same key count once
	defer p.mu.Unlock()
	if g.Knows(keys...) {
		return KeyDecision{}
	}
	m, _ := p.seen.get(now, source)
	over := m.since + rate.Window.Milliseconds()
	switch {
	case now >= over || now < m.since: // or the clock was set back
		m = newKeyCount{since: now}
	case m.count >= rate.Count:
		return KeyDecision{New: true, Refused: true, Wait: millis(over - now)}
	}
	m.count++
	p.seen.put(now, source, m)
	for _, k := range keys {
		g.learn(now, k)
	}
	return KeyDecision{New: true}
}

func (g *KeyGuard) knows(now int64, k Key) bool {
	p := &g.known[k[0]%guardParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.keep(now, k)
}

func (g *KeyGuard) learn(now int64, k Key) {
	p := &g.known[k[0]%guardParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.put(now, k, struct{}{})
}
