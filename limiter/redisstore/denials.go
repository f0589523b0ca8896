package redisstore

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/weir-proxy/weir/limiter"
)

// denialTTL is how long a denial is used without another call to Redis, because a key
// that is deleted by hand is not published. A flood of refused requests causes one call
// to Redis in this time for each key.
const denialTTL = 3 * time.Second

// noExpiry is the TTL of denials when Redis was called and did not reply.
const noExpiry = time.Duration(math.MaxInt64)

// denials caches refusals of Redis until the time that Redis returned as Wait. Until then
// the same claim, or one with a higher cost, is refused without a call. The result is the
// same, because only a refund, a grant, a reset or the end of a ban makes permits
// available earlier, and these are published (see invalidations). While the subscription
// is down, nothing is cached.
//
// For a limiter shared with Redisson, Java programs also make permits available, by
// release or by a new rate, and do not publish it. Such a refusal is cached for
// sharedDenialTTL.
type denials struct {
	start        time.Time // times of denials count from here
	cache        *otter.Cache[windowID, *denial]
	isSubscribed atomic.Bool   // changes of other processes are received
	version      atomic.Uint64 // incremented by each invalidation
	hasEntries   atomic.Bool   // false if the cache is certainly empty
}

// sharedDenialTTL is the maximum delay until permits that a Java program has released are
// noticed. A key that is refused all the time causes ten calls a second.
const sharedDenialTTL = 100 * time.Millisecond

// A denial is the refusal of cost permits of limit. It is immutable.
type denial struct {
	limit     *limiter.Limit
	cost      int64
	remaining int64
	askedAt   time.Duration // when Redis was called
	expiresAt time.Duration
	redisTime int64 // of the decision, in milliseconds since 1970
	banned    bool
	refusal   limiter.Refusal
}

// newDenials returns a cache of at most size denials.
func newDenials(size int) *denials {
	return &denials{start: time.Now(), cache: otter.Must(&otter.Options[windowID, *denial]{MaximumSize: size})}
}

// now returns the time since start.
func (n *denials) now() time.Duration { return time.Since(n.start) }

// decide fills d and returns true if at least one of claims is refused by a denial that
// is not older than age. The outcomes of the other claims are unknown. If it
// returns false, it may have overwritten the elements of d.Outcomes.
func (n *denials) decide(age time.Duration, claims []limiter.Claim, d *limiter.Decision) bool {
	if n == nil || !n.hasEntries.Load() || !n.isSubscribed.Load() {
		return false
	}
	var now, wait time.Duration // now is read when there is a denial
	var first *denial
	refused, outcomes := 0, d.Outcomes[:0]
	for i := range claims {
		c := &claims[i]
		known, ok := n.cache.GetIfPresent(windowIDOf(c))
		if ok && now == 0 {
			now = n.now()
		}
		if !ok || !known.refuses(now, age, c) {
			outcomes = append(outcomes, limiter.Outcome{Allowed: true, Remaining: c.Limit.Capacity(), Unknown: true})
			continue
		}
		if refused++; refused == 1 {
			first = known
		}
		// Rounded up to milliseconds, so that it is never before the time of Redis.
		left := (known.expiresAt - now + time.Millisecond - 1).Truncate(time.Millisecond)
		outcomes = append(outcomes, limiter.Outcome{Remaining: known.remaining, Wait: left, Banned: known.banned})
		wait = max(wait, left)
	}
	if refused == 0 {
		return false
	}
	*d = limiter.Decision{At: time.UnixMilli(first.redisTime + (now - first.askedAt).Milliseconds()), Wait: wait, Outcomes: outcomes}
	if refused == 1 {
		d.Repeats = &first.refusal
	}
	return true
}

// refuses reports whether d, the denial of the window of c, refuses c at now and is not
// older than age.
func (d *denial) refuses(now, age time.Duration, c *limiter.Claim) bool {
	if c.RedissonName != "" && age == denialTTL {
		age = sharedDenialTTL // a Java program may have released permits without a message
	}
	return now < d.expiresAt && now-d.askedAt <= age && c.Cost >= d.cost && sameLimit(d.limit, c.Limit)
}

// close stops the goroutines of the cache.
func (n *denials) close() {
	if n != nil {
		n.cache.StopAllGoroutines()
	}
}

// currentVersion returns the version to pass to learn. It must be read before Redis is
// called.
func (n *denials) currentVersion() uint64 {
	if n == nil {
		return 0
	}
	return n.version.Load()
}

// A denialQuery is a request to Redis, with its time and the version at that time.
type denialQuery struct {
	claims  []limiter.Claim
	at      time.Time
	version uint64
}

// learn caches the refusals of d, unless there was an invalidation since the request was
// sent, which changes the version.
func (n *denials) learn(q denialQuery, d *limiter.Decision) {
	if n == nil || d.Allowed {
		return
	}
	at := q.at.Sub(n.start)
	for i, o := range d.Outcomes {
		claim := &q.claims[i]
		if o.Allowed || isChangeable(claim) {
			continue
		}
		id := windowIDOf(claim)
		n.set(id, &denial{
			limit: claim.Limit, cost: claim.Cost, remaining: o.Remaining, banned: o.Banned,
			askedAt: at, expiresAt: at + o.Wait, redisTime: d.At.UnixMilli(),
		})
		if n.version.Load() != q.version || !n.isSubscribed.Load() {
			n.cache.Invalidate(id)
		}
	}
}

func (n *denials) set(id windowID, d *denial) {
	n.hasEntries.Store(true)
	n.cache.Set(id, d)
}

// isChangeable reports whether a refusal of c must not be cached, because held permits
// can be released at any time, and other values of a Distinct limit may be granted.
func isChangeable(c *limiter.Claim) bool {
	return c.Limit.Algorithm.HasLeases() || c.Limit.Algorithm.HasValues()
}

// invalidateClaims removes the denials of claims after a change by this process, so that
// its next request need not wait for the message.
func (n *denials) invalidateClaims(claims []limiter.Claim) {
	if n == nil {
		return
	}
	for i := range claims {
		n.invalidate(windowIDOf(&claims[i]))
	}
}

// invalidate removes the denial of a window.
func (n *denials) invalidate(id windowID) {
	n.version.Add(1) // before the removal: learn reads it after it has added a denial
	n.cache.Invalidate(id)
}

// setSubscribed sets whether invalidations are received, and removes all denials.
func (n *denials) setSubscribed(subscribed bool) {
	n.isSubscribed.Store(subscribed)
	n.version.Add(1)
	n.cache.InvalidateAll()
}
