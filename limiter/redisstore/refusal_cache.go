package redisstore

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// refusalTTL is how long a cached refusal is used without another call to Redis, because a key
// that is deleted by hand is not published. A flood of refused requests causes one call
// to Redis in this time for each key.
const refusalTTL = 3 * time.Second

// noExpiry is the TTL of refusals when Redis was called and did not reply.
const noExpiry = time.Duration(math.MaxInt64)

// refusalCache caches refusals of Redis until the time that Redis returned as Wait. Until then
// the same claim, or one with a higher cost, is refused without a call. The result is the
// same, because only a refund, a grant, a reset or the end of a ban makes permits
// available earlier, and these are published (see listen). While the subscription
// is down, nothing is cached; a Store that caches no refusals does not subscribe.
//
// For a limiter shared with Redisson, Java programs also make permits available, by
// release or by a new rate, and do not publish it. Such a refusal is cached for
// redissonRefusalTTL.
type refusalCache struct {
	start        time.Time // times of cached refusals count from here
	cache        *otter.Cache[windowID, *cachedRefusal]
	isSubscribed atomic.Bool   // changes of other processes are received
	version      atomic.Uint64 // incremented by each invalidation
	hasEntries   atomic.Bool   // false if the cache is certainly empty
	returns      sync.Map      // by the name of a Noted limit, when this process last returned permits of it by subject
}

// redissonRefusalTTL is the maximum delay until permits that a Java program has released are
// noticed. A key that is refused all the time causes ten calls a second.
const redissonRefusalTTL = 100 * time.Millisecond

// A cachedRefusal is the refusal of cost permits of limit, so that a hot key costs no calls. It is immutable.
type cachedRefusal struct {
	limit     *limiter.Limit
	cost      int64
	remaining int64
	askedAt   time.Duration // when Redis was called
	expiresAt time.Duration
	redisTime int64 // of the decision, in milliseconds since 1970
	banned    bool
	refusal   limiter.Refusal
}

// newRefusalCache returns a cache of at most size refusals.
func newRefusalCache(size int) *refusalCache {
	return &refusalCache{start: time.Now(), cache: otter.Must(&otter.Options[windowID, *cachedRefusal]{MaximumSize: size})}
}

// now returns the time since start.
func (r *refusalCache) now() time.Duration { return time.Since(r.start) }

// decide fills d and returns true if at least one of claims is refused by a cached refusal that
// is not older than age. The outcomes of the other claims are unknown. If it
// returns false, it may have overwritten the elements of d.Outcomes.
func (r *refusalCache) decide(age time.Duration, claims []limiter.Claim, d *limiter.Decision) bool {
	if !r.hasEntries.Load() || !r.isSubscribed.Load() {
		return false
	}
	var now, wait time.Duration // now is read when there is a cached refusal
	var first *cachedRefusal
	refused, outcomes := 0, d.Outcomes[:0]
	for i := range claims {
		c := &claims[i]
		known, ok := r.cache.GetIfPresent(windowIDOf(c))
		if ok && now == 0 {
			now = r.now()
		}
		if !ok || !known.refuses(now, age, c) || c.Limit.Noted && r.hasReturned(c.Limit, known.askedAt) {
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

// refuses reports whether r, the cached refusal of the window of c, refuses c at now and is not
// older than age.
func (r *cachedRefusal) refuses(now, age time.Duration, c *limiter.Claim) bool {
	if c.RedissonName != "" && age == refusalTTL {
		age = redissonRefusalTTL // a Java program may have released permits without a message
	}
	return now < r.expiresAt && now-r.askedAt <= age && c.Cost >= r.cost && sameLimit(r.limit, c.Limit)
}

// invalidateLimits invalidates the refusals of limits for all keys: permits of some keys were returned,
// and only Redis knows of which.
func (r *refusalCache) invalidateLimits(limits []*limiter.Limit) {
	now := r.now()
	for _, l := range limits {
		r.returns.Store(l.Name, now)
	}
}

// hasReturned reports whether permits of l were returned by subject since Redis was called.
func (r *refusalCache) hasReturned(l *limiter.Limit, since time.Duration) bool {
	at, ok := r.returns.Load(l.Name)
	return ok && since <= at.(time.Duration)
}

// close stops the goroutines of the cache.
func (r *refusalCache) close() { r.cache.StopAllGoroutines() }

// learn caches the refusals of claims in d, unless there was an invalidation since they were
// sent, which changes the version that the cache had before.
func (r *refusalCache) learn(claims []limiter.Claim, sentAt time.Time, version uint64, d *limiter.Decision) {
	if d.Allowed || !r.isSubscribed.Load() {
		return
	}
	at := sentAt.Sub(r.start)
	for i, o := range d.Outcomes {
		claim := &claims[i]
		// Held permits can be released at any time, and other values of a Distinct limit may be granted.
		if o.Allowed || claim.Limit.Algorithm.HasLeases() || claim.Limit.Algorithm.HasValues() {
			continue
		}
		id := windowIDOf(claim)
		r.hasEntries.Store(true)
		r.cache.Set(id, &cachedRefusal{
			limit: claim.Limit, cost: claim.Cost, remaining: o.Remaining, banned: o.Banned,
			askedAt: at, expiresAt: at + o.Wait, redisTime: d.At.UnixMilli(),
		})
		if r.version.Load() != version || !r.isSubscribed.Load() {
			r.cache.Invalidate(id)
		}
	}
}

// invalidateClaims removes the refusals of claims after a change by this process, so that
// its next request need not wait for the message.
func (r *refusalCache) invalidateClaims(claims []limiter.Claim) {
	for i := range claims {
		r.invalidate(windowIDOf(&claims[i]))
	}
}

// invalidate removes the cached refusal of a window.
func (r *refusalCache) invalidate(id windowID) {
	r.version.Add(1) // before the removal: learn reads it after it has added a cached refusal
	r.cache.Invalidate(id)
}

// setSubscribed sets whether invalidations are received, and removes all refusals.
func (r *refusalCache) setSubscribed(subscribed bool) {
	r.isSubscribed.Store(subscribed)
	r.version.Add(1)
	r.cache.InvalidateAll()
}

const (
	// pingInterval is the time without a message after which a PING is sent. The reply
	// must arrive within the same time.
	pingInterval = 3 * time.Second
	// resubscribePause is the time between two attempts to subscribe.
	resubscribePause = 250 * time.Millisecond
)

// listen receives, over one subscription, messages about windows in which permits
// became available: by a refund, a grant, a reset or the end of a ban in any process. It
// tells refusals whether the subscription is up. It resubscribes after errors, until the Store or the client is closed.
func (s *Store) listen() {
	for {
		err := s.receive(s.ctx)
		s.refusals.setSubscribed(false)
		if errors.Is(err, redis.ErrClosed) || pause(s.ctx, resubscribePause) != nil {
			return
		}
	}
}

// receive handles messages until the subscription fails.
func (s *Store) receive(ctx context.Context) error {
	sub := s.client.Subscribe(ctx, s.names.prefix+":room", s.channel) // the first is of earlier versions
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	pinged := false
	for ctx.Err() == nil {
		message, err := sub.ReceiveTimeout(ctx, pingInterval)
		var timeout net.Error
		switch {
		case err != nil && errors.As(err, &timeout) && timeout.Timeout() && !pinged:
			pinged = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		pinged = false
		switch m := message.(type) {
		case *redis.Subscription:
			s.refusals.setSubscribed(m.Count == 2) // the client subscribes to them again in any order
		case *redis.Message:
			s.handleMessage(m.Payload)
		}
	}
	return ctx.Err()
}

// handleMessage handles a message. It invalidates the windows that the message names, one on a line, or all
// windows if a line names none. The first line of several is empty: processes of versions that know
// one window in a message invalidate all. A message may also be a change announced by another process.
func (s *Store) handleMessage(message string) {
	if s.handleChange(message) {
		return
	}
	for line := range strings.SplitSeq(strings.TrimPrefix(message, "\n"), "\n") {
		id, ok := s.names.parseWindow(line)
		if !ok {
			s.refusals.setSubscribed(true)
			return
		}
		s.refusals.invalidate(id)
	}
}
