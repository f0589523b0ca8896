package redisstore

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/weir-proxy/weir/limiter"
)

// denialTTL is how long a denial is believed without asking Redis once more: whoever
// deletes a key by hand tells nobody. A flood of what is refused costs Redis one call
// in so long for each key.
const denialTTL = 3 * time.Second

// noExpiry is how long it is believed when Redis was asked and did not answer.
const noExpiry = time.Duration(math.MaxInt64)

// denials remember what Redis refused, until the moment that Redis named: until
// then the same claim, or one of more permits, is refused without asking. That
// changes no decision, because nothing but a refund, a grant, a reset or the end
// of a ban makes room earlier, and those are heard of (see listener). While they
// cannot be heard of, nothing is remembered.
//
// In a limiter that Redisson shares, Java programs make room too, by release or a
// new rate, and do not tell: of those a refusal is remembered for sharedDenialTTL.
type denials struct {
	cache        *otter.Cache[windowID, denial]
	isSubscribed atomic.Bool   // what other proxies give back is heard of
	version      atomic.Uint64 // counts what made room
	hasEntries   atomic.Bool   // false: the cache is empty
}

// sharedDenialTTL is how late a proxy may be to see the room that a Java program has
// made: one that is refused all the time asks ten times a second.
const sharedDenialTTL = 100 * time.Millisecond

// A denial is the refusal of cost permits of limit.
type denial struct {
	limit     *limiter.Limit
	cost      int64
	remaining int64
	banned    bool
	askedAt   time.Time // when Redis was
	expiresAt time.Time
	clockSkew time.Duration // how far the store's clock was ahead of ours, about
}

// newDenials keeps at most size of them, the most used.
func newDenials(size int) *denials {
	if size <= 0 {
		return nil
	}
	return &denials{cache: otter.Must(&otter.Options[windowID, denial]{MaximumSize: size})}
}

// decide fills d and returns true if one of claims is known to be refused now, by
// what Redis said at most so long ago. Of the others it says that they were not asked.
func (n *denials) decide(now time.Time, age time.Duration, claims []limiter.Claim, d *limiter.Decision) bool {
	if n == nil || !n.hasEntries.Load() || !n.isSubscribed.Load() {
		return false
	}
	var first denial
	refused := false
	for _, c := range claims {
		if first, refused = n.find(now, age, c); refused {
			break
		}
	}
	if !refused {
		return false
	}
	*d = limiter.Decision{At: time.UnixMilli(now.Add(first.clockSkew).UnixMilli()), Outcomes: d.Outcomes[:0]}
	for _, c := range claims {
		o := limiter.Outcome{Allowed: true, Remaining: c.Limit.Capacity(), Unknown: true}
		if known, ok := n.find(now, age, c); ok {
			// Whole milliseconds, rounded up: never before Redis said.
			wait := (known.expiresAt.Sub(now) + time.Millisecond - 1).Truncate(time.Millisecond)
			o = limiter.Outcome{Remaining: known.remaining, Wait: wait, Banned: known.banned}
			d.Wait = max(d.Wait, wait)
		}
		d.Outcomes = append(d.Outcomes, o)
	}
	return true
}

func (n *denials) find(now time.Time, age time.Duration, c limiter.Claim) (denial, bool) {
	known, ok := n.cache.GetIfPresent(windowIDOf(c))
	if c.RedissonName != "" && age == denialTTL {
		age = sharedDenialTTL // a Java program may have given permits back, and does not tell
	}
	return known, ok && now.Sub(known.askedAt) <= age && c.Cost >= known.cost && now.Before(known.expiresAt) && sameLimit(known.limit, c.Limit)
}

// close ends what the cache runs by itself.
func (n *denials) close() {
	if n != nil {
		n.cache.StopAllGoroutines()
	}
}

// currentVersion is the version to learn by, taken before Redis is asked.
func (n *denials) currentVersion() uint64 {
	if n == nil {
		return 0
	}
	return n.version.Load()
}

// denialQuery is what Redis was asked, when, and what was the version then.
type denialQuery struct {
	claims  []limiter.Claim
	at      time.Time
	version uint64
}

// learn remembers what was refused, if nothing made room since it was sent: then the
// version is still what it was.
func (n *denials) learn(q denialQuery, d *limiter.Decision) {
	if n == nil || d.Allowed {
		return
	}
	for i, o := range d.Outcomes {
		claim := q.claims[i]
		if o.Allowed || isChangeable(claim) {
			continue
		}
		id := windowIDOf(claim)
		n.set(id, denial{
			limit: claim.Limit, cost: claim.Cost, remaining: o.Remaining, banned: o.Banned,
			askedAt: q.at, expiresAt: q.at.Add(o.Wait), clockSkew: d.At.Sub(q.at),
		})
		if n.version.Load() != q.version || !n.isSubscribed.Load() {
			n.cache.Invalidate(id)
		}
	}
}

func (n *denials) set(id windowID, d denial) {
	n.hasEntries.Store(true)
	n.cache.Set(id, d)
}

// isChangeable reports whether a refusal of c says little of the next one: what is
// held is given back at any time, and a value that was refused says nothing of those
// that stand.
func isChangeable(c limiter.Claim) bool {
	return c.Limit.Algorithm == limiter.Concurrent || c.Limit.Algorithm == limiter.Distinct
}

// invalidateClaims is told that there may be room for claims: by who made it, so that the
// next request of this process need not wait until it is heard of.
func (n *denials) invalidateClaims(claims []limiter.Claim) {
	if n == nil {
		return
	}
	for _, c := range claims {
		n.invalidate(windowIDOf(c))
	}
}

// invalidate is told that there may be room in the window that id names.
func (n *denials) invalidate(id windowID) {
	n.version.Add(1)
	n.cache.Invalidate(id)
}

// setSubscribed says whether from now on it is heard of what others give back. What was
// learnt before is not trusted.
func (n *denials) setSubscribed(yes bool) {
	n.isSubscribed.Store(yes)
	n.version.Add(1)
	n.cache.InvalidateAll()
}
