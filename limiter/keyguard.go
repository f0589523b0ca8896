package limiter

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// MaxKeyGuardWindow is the longest window of the rate of a KeyGuard.
const MaxKeyGuardWindow = time.Hour

// KeyGuardOptions are the options of a KeyGuard. Zero values mean the defaults.
type KeyGuardOptions struct {
	// MaxKeys is the maximum number of known keys; by default 1,000,000, which take
	// about 50 MB. Beyond it the keys that were not used for the longest time are
	// evicted, so that keys in regular use stay known during a flood of new keys.
	MaxKeys int
	// MaxSources is the maximum number of counted sources; by default 200,000, which
	// take about 20 MB. Beyond it the oldest counts are evicted: a flood from so many
	// sources cannot be stopped by a count of each, and must not block other sources.
	MaxSources int
	// TTL is the minimum time for which a key is known after its last use; by default
	// one day.
	TTL time.Duration
	// Clock returns the current time; by default time.Now.
	Clock func() time.Time
}

// A KeyGuard limits how many requests with new keys one source, for example a client
// address, may send in a window. It stops clients that use a new random key for each
// request, to bypass a limit or to fill a store. A key is new if it was not used recently
// by any source.
//
// The window of a source starts with its first new key, so around the end of a window a
// source may use twice as many. The state is local to the process and bounded. All
// methods are safe for concurrent use. A request with known keys costs about 100 ns.
type KeyGuard struct {
	now     func() int64            // the current time in milliseconds since 1970
	known   []agingMap[struct{}]    // known keys
	sources []agingMap[newKeyCount] // new keys by source
}

// newKeyCount is the number of requests with new keys of one source.
type newKeyCount struct {
	windowStart int64 // start of the window, in milliseconds
	count       int64
}

// guardShards is the number of shards of keys, and of sources.
const guardShards = 64

// A KeyDecision is the result of KeyGuard.Admit.
type KeyDecision struct {
	New     bool          // at least one key is new
	Refused bool          // the source has used too many new keys; the keys stay new
	Wait    time.Duration // if Refused: the time until the source may use new keys again
}

// NewKeyGuard returns a KeyGuard without known keys.
func NewKeyGuard(o KeyGuardOptions) *KeyGuard {
	o.MaxKeys, o.MaxSources = cmp.Or(max(0, o.MaxKeys), 1_000_000), cmp.Or(max(0, o.MaxSources), 200_000)
	o.TTL = cmp.Or(max(0, o.TTL), 24*time.Hour)
	return &KeyGuard{
		now:     millisOf(o.Clock),
		known:   newGuardShards[struct{}](o.MaxKeys, o.TTL),
		sources: newGuardShards[newKeyCount](o.MaxSources, MaxKeyGuardWindow),
	}
}

func newGuardShards[V any](capacity int, ttl time.Duration) []agingMap[V] {
	parts := make([]agingMap[V], guardShards)
	for i := range parts {
		p := &parts[i]
		p.generationSize, p.ttl, p.young = max(capacity/guardShards/2, 1), ttl.Milliseconds(), map[Key]V{}
	}
	return parts
}

// CheckKeyGuard returns an error that wraps ErrInvalidRate if rate is not valid for a
// KeyGuard.
func CheckKeyGuard(rate Rate) error {
	if err := rate.Check(); err != nil {
		return err
	}
	if rate.Window > MaxKeyGuardWindow {
		return fmt.Errorf("%w: new keys are counted over an hour at most; write for example 1000/1m", ErrInvalidRate)
	}
	return nil
}

// Known reports whether all keys are known. It restarts their time to live.
func (g *KeyGuard) Known(keys ...Key) bool {
	return g.each(keys, (*agingMap[struct{}]).touch)
}

// each calls do for each of keys, with the lock of its shard held, until it returns false, and reports whether it never did.
func (g *KeyGuard) each(keys []Key, do func(known *agingMap[struct{}], now int64, k Key) bool) bool {
	now := g.now()
	return !slices.ContainsFunc(keys, func(k Key) bool {
		p := &g.known[k[0]%guardShards]
		p.mu.Lock()
		defer p.mu.Unlock()
		return !do(p, now, k)
	})
}

// Admit decides whether source may send a request with these keys. rate must be valid
// according to CheckKeyGuard. A request with new keys counts once, however many they are,
// and makes the keys known. A refused request changes nothing.
func (g *KeyGuard) Admit(rate Rate, source Key, keys ...Key) KeyDecision {
	if g.Known(keys...) {
		return KeyDecision{}
	}
	now := g.now()
	p := &g.sources[source[0]%guardShards]
	p.mu.Lock() // so that concurrent requests with the same new keys count once
	defer p.mu.Unlock()
	if g.Known(keys...) {
		return KeyDecision{}
	}
	m, _ := p.get(now, source)
	m, d := m.admit(now, rate)
	if !d.Refused {
		p.put(now, source, m)
		g.each(keys, func(known *agingMap[struct{}], now int64, k Key) bool {
			known.put(now, k, struct{}{})
			return true
		})
	}
	return d
}

// admit decides whether the source of c may send a request with new keys at now, and returns what it has sent then.
func (c newKeyCount) admit(now int64, rate Rate) (newKeyCount, KeyDecision) {
	windowEnd := c.windowStart + rate.Window.Milliseconds()
	switch {
	case now >= windowEnd || now < c.windowStart: // now is earlier if the clock was set back
		c = newKeyCount{windowStart: now}
	case c.count >= rate.Count:
		return c, KeyDecision{New: true, Refused: true, Wait: millis(windowEnd - now)}
	}
	c.count++
	return c, KeyDecision{New: true}
}

// Peek returns what Admit would return, without changing anything: it neither adds keys
// nor restarts their time to live.
func (g *KeyGuard) Peek(rate Rate, source Key, keys ...Key) KeyDecision {
	isKnown := func(known *agingMap[struct{}], now int64, k Key) bool {
		_, found := known.get(now, k)
		return found
	}
	if g.each(keys, isKnown) {
		return KeyDecision{}
	}
	now := g.now()
	p := &g.sources[source[0]%guardShards]
	p.mu.Lock()
	defer p.mu.Unlock()
	m, _ := p.get(now, source)
	_, d := m.admit(now, rate)
	return d
}

// An agingMap is a bounded map that keeps each entry for at least ttl after its last use,
// unless it is full. It has two generations. When the young generation is full or ttl has
// passed, it becomes the old one, and the previous old one is dropped as a whole. So
// eviction needs no scan, and a lookup costs at most two map accesses. Times are
// milliseconds and always arguments.
type agingMap[V any] struct {
	mu             sync.Mutex // held by callers of its methods; of a source before it is locked for keys
	generationSize int        // maximum number of keys in a generation, at least 1
	ttl            int64
	youngSince     int64 // when the young generation was started
	young, old     map[Key]V
}

// get returns the value of k.
func (a *agingMap[V]) get(now int64, k Key) (v V, found bool) {
	a.rotate(now)
	if v, found = a.young[k]; found {
		return v, true
	}
	v, found = a.old[k]
	return v, found
}

// touch restarts the time to live of k and reports whether k has a value.
func (a *agingMap[V]) touch(now int64, k Key) (found bool) {
	a.rotate(now)
	if _, found = a.young[k]; found {
		return true
	}
	v, found := a.old[k]
	if found {
		a.put(now, k, v)
	}
	return found
}

// put sets the value of k and restarts its time to live.
func (a *agingMap[V]) put(now int64, k Key, v V) {
	a.rotate(now)
	if _, found := a.young[k]; !found && len(a.young) >= a.generationSize {
		a.startGeneration(now)
	}
	a.young[k] = v
}

// rotate drops the generations that have expired.
func (a *agingMap[V]) rotate(now int64) {
	if now-a.youngSince < a.ttl && now >= a.youngSince { // now is earlier if the clock was set back
		return
	}
	bothExpired := now-a.youngSince >= 2*a.ttl
	a.startGeneration(now)
	if bothExpired {
		a.old = nil
	}
}

// startGeneration makes the young generation the old one and starts an empty one.
func (a *agingMap[V]) startGeneration(now int64) {
	a.youngSince, a.young, a.old = now, map[Key]V{}, a.young
}
