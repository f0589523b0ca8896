package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

var (
	// ErrNoRate reports that a RateLimiter has no rate yet, or lost it: set one.
	ErrNoRate = errors.New("rate limiter is not initialized")
	// ErrRateConfig reports that a RateConfig makes no sense.
	ErrRateConfig = errors.New("rate config not valid")
	// ErrWaitTooLong reports that there are no permits within the time that a
	// context leaves. Nothing was taken.
	ErrWaitTooLong = errors.New("no permits before the deadline")
)

// A RateConfig is what a RateLimiter keeps in its hash.
type RateConfig struct {
	Rate limiter.Rate
	// PerClient counts each client by itself; otherwise all count together.
	PerClient bool
	// KeepAlive is how long an unused limiter is remembered, config and all: 0
	// for ever, else at least the rate's window.
	KeepAlive time.Duration
}

func (c RateConfig) check() error {
	if err := c.Rate.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrRateConfig, err)
	}
	if c.KeepAlive != 0 && c.KeepAlive < c.Rate.Window {
		return fmt.Errorf("%w: it is kept alive for %v, less than its window of %v", ErrRateConfig, c.KeepAlive, c.Rate.Window)
	}
	return nil
}

// A RateLimiter is a handle on one RRateLimiter of Redisson, for a Go program that
// shares it with Java programs. All methods are safe for concurrent use. Their
// errors are those named here, limiter.ErrInvalidCost, the context's, or wrap
// limiter.ErrUnavailable, and ErrShared where what Redis holds cannot be used.
//
// Entries are packed as those that are there, by whatever version; where there
// are none, as Redisson does since 3.17. See As for others.
//
// Permits come back one interval after they were taken, by the clock of Redis;
// Java programs go by their own, so next to them the rate holds for windows that
// are shorter by twice the skew of their clocks.
//
// Like Redisson, a handle believes the value that is kept beside the entries, and
// reads the entries only where permits have come back or are too few: a call costs
// the same however many are out. What a Java program gives back with release, which
// RRateLimiter has since 3.52 and which raises value but leaves the entries, is free
// for this handle as well; when those entries expire nothing comes back twice.
// Release here takes permits out of the entries.
//
// A limiter that has lost its value, by eviction for instance, is counted again;
// of one with more than 512 entries that takes several calls, and none grants
// before.
type RateLimiter struct {
	store  *Store
	name   string
	keys   []string
	format limiter.RedissonFormat
	queue  chan struct{} // who waits: first come, first served
}

// RateLimiter is the handle on the limiter of that name. client tells the clients
// of a limiter that counts each by itself apart; a UUID does. Empty, it is this
// store's, as for claims that name the limiter. An error wraps
// limiter.ErrInvalidLimit: the name is empty or has odd braces.
func (s *Store) RateLimiter(name, client string) (*RateLimiter, error) {
	if err := limiter.CheckRedissonName(name); err != nil {
		return nil, err
	}
	if client == "" {
		client = s.names.client
	}
	return &RateLimiter{store: s, name: name, keys: sharedKeys(name, client), queue: make(chan struct{}, 1)}, nil
}

// Fixed is the same limiter in the form of Redisson up to 3.13.2: a counter that
// starts again with each window, so up to twice the rate across a border. The
// two forms of one limiter do not know of each other.
func (r *RateLimiter) Fixed() *RateLimiter { return r.WithFormat(limiter.RedissonWindow) }

// WithFormat is the same limiter for a form of Redisson's: see limiter.RedissonFormatOf.
func (r *RateLimiter) WithFormat(f limiter.RedissonFormat) *RateLimiter {
	other := *r
	other.format = f
	return &other
}

// TrySetRate gives the limiter its config if it has none, and reports whether it
// had none.
func (r *RateLimiter) TrySetRate(ctx context.Context, c RateConfig) (bool, error) {
	return r.set(ctx, "try", c)
}

// SetRate gives the limiter a config and forgets what was taken: nobody should
// call it often.
func (r *RateLimiter) SetRate(ctx context.Context, c RateConfig) error {
	_, err := r.set(ctx, "set", c)
	return err
}

// UpdateRate gives a limiter that has a config another one; what was taken stays
// taken, unless it is now counted for other clients. It reports whether there was
// a config.
func (r *RateLimiter) UpdateRate(ctx context.Context, c RateConfig) (bool, error) {
	return r.set(ctx, "update", c)
}

func (r *RateLimiter) set(ctx context.Context, how string, c RateConfig) (bool, error) {
	if err := c.check(); err != nil {
		return false, err
	}
	kind := 0
	if c.PerClient {
		kind = 1
	}
	n, err := r.number(ctx, "set rate", r.scripts().set,
		how, c.Rate.Count, c.Rate.Window.Milliseconds(), kind, c.KeepAlive.Milliseconds())
	r.invalidate()
	return n == 1, err
}

// Config is the limiter's config.
func (r *RateLimiter) Config(ctx context.Context) (RateConfig, error) {
	ctx, cancel := context.WithTimeout(ctx, r.store.timeout)
	defer cancel()
	fields, err := r.store.client.HGetAll(ctx, r.name).Result()
	if err != nil {
		return RateConfig{}, fmt.Errorf("read config: %w: %w", limiter.ErrUnavailable, err)
	}
	if len(fields) == 0 {
		return RateConfig{}, ErrNoRate
	}
	rate, err1 := strconv.ParseInt(fields["rate"], 10, 64)
	interval, err2 := strconv.ParseInt(fields["interval"], 10, 64)
	alive, err3 := strconv.ParseInt(cmp.Or(fields["keepAliveTime"], "0"), 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return RateConfig{}, fmt.Errorf("%w: %w", ErrRateConfig, err)
	}
	return RateConfig{
		Rate:      limiter.Rate{Count: rate, Window: time.Duration(interval) * time.Millisecond},
		PerClient: fields["type"] == "1",
		KeepAlive: time.Duration(alive) * time.Millisecond,
	}, nil
}

// Allow takes n permits, or none: then Outcome.Wait is when n will be there.
func (r *RateLimiter) Allow(ctx context.Context, n int64) (limiter.Outcome, error) {
	if n < 1 || n > limiter.MaxCount {
		return limiter.Outcome{}, fmt.Errorf("%w: %d permits of %s", limiter.ErrInvalidCost, n, r.name)
	}
	var b sharedBatch
	b.request(newID(), n)
	reply, err := r.run(ctx, "take", r.scripts().take, b.requests)
	if redis.HasErrorPrefix(err, "COST") {
		return limiter.Outcome{}, fmt.Errorf("%w: %d permits of %s, which has %s", limiter.ErrInvalidCost, n, r.name, strings.TrimPrefix(err.Error(), "COST "))
	}
	if err != nil {
		return limiter.Outcome{}, err
	}
	list, err := numbersOf(reply)
	if err == nil && (len(list) < 4 || slices.Min(list[1:4]) < 0 || list[1] > 1) {
		err = errReply
	}
	if err != nil {
		return limiter.Outcome{}, fmt.Errorf("take: %w: %w", limiter.ErrUnavailable, err)
	}
	return limiter.Outcome{Allowed: list[1] == 1, Remaining: list[2], Wait: time.Duration(list[3]) * time.Millisecond}, nil
}

// Wait takes n permits as soon as there are, in the order in which callers of
// this handle came. It returns ErrWaitTooLong at once when they will not be there
// before ctx's deadline, and takes nothing when ctx ends.
func (r *RateLimiter) Wait(ctx context.Context, n int64) error {
	select {
	case r.queue <- struct{}{}:
		defer func() { <-r.queue }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		o, err := r.Allow(ctx, n)
		if err != nil || o.Allowed {
			return err
		}
		if at, ok := ctx.Deadline(); ok && time.Until(at) < o.Wait {
			return ErrWaitTooLong
		}
		timer := time.NewTimer(o.Wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// Available is how many permits are left. It changes nothing.
func (r *RateLimiter) Available(ctx context.Context) (int64, error) {
	return r.number(ctx, "count", r.scripts().left)
}

// Release gives back n of the permits that were taken last; there are never more
// than the rate.
func (r *RateLimiter) Release(ctx context.Context, n int64) error {
	if n < 1 {
		return fmt.Errorf("%w: %d permits to give back", limiter.ErrInvalidCost, n)
	}
	var err error
	for n > 0 && err == nil {
		n, err = r.number(ctx, "release", r.scripts().grant, n)
	}
	r.invalidate()
	return err
}

// Delete removes the limiter, config and all, and reports whether there was one.
func (r *RateLimiter) Delete(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.store.timeout)
	defer cancel()
	n, err := r.store.client.Del(ctx, r.keys...).Result()
	if err != nil {
		return false, fmt.Errorf("delete: %w: %w", limiter.ErrUnavailable, err)
	}
	r.invalidate()
	return n > 0, nil
}

// Expire has the limiter forgotten, config and all, after d, and reports whether
// there was one. All its keys get the same time to live in one step.
func (r *RateLimiter) Expire(ctx context.Context, d time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.store.timeout)
	defer cancel()
	var there []*redis.BoolCmd
	_, err := r.store.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range r.keys {
			there = append(there, p.PExpire(ctx, key, d))
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("expire: %w: %w", limiter.ErrUnavailable, err)
	}
	return there[0].Val(), nil
}

// number runs a script that answers with one.
func (r *RateLimiter) number(ctx context.Context, verb string, sc script, args ...any) (int64, error) {
	reply, err := r.run(ctx, verb, sc, args...)
	if err != nil {
		return 0, err
	}
	n, ok := reply.(int64)
	if !ok || n < 0 {
		return 0, fmt.Errorf("%s: %w: %w", verb, limiter.ErrUnavailable, errReply)
	}
	return n, nil
}

func (r *RateLimiter) run(ctx context.Context, verb string, sc script, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, r.store.timeout)
	defer cancel()
	reply, err := sc.run(withSharedCall(ctx), r.store.client, r.keys, append([]any{"", "", "", r.format.String()}, args...))
	switch {
	case redis.HasErrorPrefix(err, "UNSET"):
		return nil, ErrNoRate
	case redis.HasErrorPrefix(err, "COST"):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", verb, limiter.ErrUnavailable, sharedError(err))
	}
	return reply, nil
}

// scripts are those for the limiter's form.
func (r *RateLimiter) scripts() *sharedScripts { return r.store.shared(r.format) }

// invalidate lets this store's own claims know that there may be room.
func (r *RateLimiter) invalidate() {
	if r.store.denials != nil {
		r.store.denials.invalidate(windowID{slot: slot{redisson: r.name}})
	}
}
