package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

var (
	// ErrNoRate reports that a RateLimiter has no config in Redis, or has lost it.
	ErrNoRate = errors.New("rate limiter is not initialized")
	// ErrRateConfig reports that a RateConfig is not valid.
	ErrRateConfig = errors.New("rate config not valid")
	// ErrWaitTooLong reports that the permits are not available before the deadline of
	// the context. Nothing was taken.
	ErrWaitTooLong = errors.New("no permits before the deadline")
)

// A RateConfig is the config of a RateLimiter in Redis.
type RateConfig struct {
	Rate limiter.Rate
	// PerClient counts the permits of each client separately; otherwise all clients share
	// the rate.
	PerClient bool
	// KeepAlive is the time after which an unused limiter is deleted with its config; 0
	// means never. Otherwise it is at least the rate's window.
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

// A RateLimiter is a handle on an RRateLimiter of Redisson, for Go programs that share it
// with Java programs. All methods are safe for concurrent use. They return the errors of
// this package, limiter.ErrInvalidCost, the error of the context, ErrRedisson if the data
// in Redis cannot be used, or an error that wraps limiter.ErrUnavailable.
//
// New entries have the format of existing ones, whatever version of Redisson wrote them.
// If there are none, the format is that of Redisson 3.17 and later; see WithFormat.
//
// Permits expire one interval after they were taken, by the clock of Redis. Java programs
// use their own clocks, so next to them the rate is only guaranteed for windows that are
// shorter by twice the clock skew.
//
// Like Redisson, a handle relies on the value that is stored beside the entries, and
// reads the entries only if permits have expired or are too few. So the cost of a call
// does not depend on the number of taken permits. Permits that a Java program returns
// with release, which RRateLimiter has since 3.52 and which raises the value but keeps
// the entries, are available to this handle too; when those entries expire, the permits
// are not returned again. Release of this handle removes permits from the entries.
//
// If the value is lost, for example by eviction, it is counted again from the entries.
// With more than 512 entries this takes several calls, and no permit is granted before it
// is complete.
type RateLimiter struct {
	store  *Store
	name   string
	keys   []string
	format limiter.RedissonFormat
	queue  chan struct{} // has capacity 1: callers of Wait, first in, first out
}

// RateLimiter returns a handle on the limiter with this name. client is the UUID that
// identifies a client of a PerClient limiter; if it is empty, it is that of the store, as
// for claims with a RedissonName. An error wraps limiter.ErrInvalidLimit if the name is
// not valid.
func (s *Store) RateLimiter(name, client string) (*RateLimiter, error) {
	if err := limiter.CheckRedissonName(name); err != nil {
		return nil, err
	}
	return &RateLimiter{store: s, name: name, keys: redissonKeysOf(name, cmp.Or(client, s.names.client)), queue: make(chan struct{}, 1)}, nil
}

// Fixed returns a handle on the same limiter in the format of Redisson up to 3.13.2: a
// counter that is reset with each window, so that up to twice the rate is granted around
// the end of a window. The two formats of one limiter count separately.
func (r *RateLimiter) Fixed() *RateLimiter { return r.WithFormat(limiter.RedissonWindow) }

// WithFormat returns a handle on the same limiter for a format of Redisson; see
// limiter.RedissonFormatOf.
func (r *RateLimiter) WithFormat(f limiter.RedissonFormat) *RateLimiter {
	other := *r
	other.format = f
	return &other
}

// TrySetRate sets the config if the limiter has none, and reports whether it did.
func (r *RateLimiter) TrySetRate(ctx context.Context, c RateConfig) (bool, error) {
	return r.set(ctx, "try", c)
}

// SetRate sets the config and deletes the state of the limiter.
func (r *RateLimiter) SetRate(ctx context.Context, c RateConfig) error {
	_, err := r.set(ctx, "set", c)
	return err
}

// UpdateRate replaces the config if there is one, and reports whether there was. Taken
// permits stay taken, unless PerClient changes.
func (r *RateLimiter) UpdateRate(ctx context.Context, c RateConfig) (bool, error) {
	return r.set(ctx, "update", c)
}

func (r *RateLimiter) set(ctx context.Context, how string, c RateConfig) (bool, error) {
	if err := c.check(); err != nil {
		return false, err
	}
	kind := map[bool]int{true: 1}[c.PerClient]
	n, err := r.number(ctx, "set rate", "set_rate",
		how, c.Rate.Count, c.Rate.Window.Milliseconds(), kind, c.KeepAlive.Milliseconds())
	r.invalidate()
	return n == 1, err
}

// Config returns the config of the limiter.
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
		Rate:      limiter.Rate{Count: rate, Window: milliseconds(interval)},
		PerClient: fields["type"] == "1",
		KeepAlive: milliseconds(alive),
	}, nil
}

// Allow takes n permits or none. If it takes none, Outcome.Wait is the time until n are
// available.
func (r *RateLimiter) Allow(ctx context.Context, n int64) (limiter.Outcome, error) {
	if n < 1 || n > limiter.MaxCount {
		return limiter.Outcome{}, fmt.Errorf("%w: %d permits of %s", limiter.ErrInvalidCost, n, r.name)
	}
	var p payload
	p.redissonRequest(newID(), n)
	list, err := r.run(ctx, "take", "take", p.requests)
	if redis.HasErrorPrefix(err, "COST") {
		return limiter.Outcome{}, fmt.Errorf("%w: %d permits of %s, which has %s", limiter.ErrInvalidCost, n, r.name, strings.TrimPrefix(err.Error(), "COST "))
	}
	if err != nil {
		return limiter.Outcome{}, err
	}
	var d limiter.Decision
	claim := limiter.Claim{RedissonName: r.name, Cost: n, Limit: &limiter.Limit{}}
	if err := readOne(list, []limiter.Claim{claim}, &d); err != nil {
		return limiter.Outcome{}, fmt.Errorf("take: %w: %w", limiter.ErrUnavailable, err)
	}
	return d.Outcomes[0], nil
}

// Wait takes n permits as soon as they are available. Callers of the same handle are
// served in order. It returns ErrWaitTooLong immediately if they are not available before
// ctx's deadline, and takes nothing if ctx ends.
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
		if pause(ctx, o.Wait) != nil {
			return context.Cause(ctx)
		}
	}
}

// Available returns the number of available permits. It changes nothing.
func (r *RateLimiter) Available(ctx context.Context) (int64, error) {
	return r.number(ctx, "count", "available")
}

// Release returns the last n taken permits. There are never more than the rate allows.
func (r *RateLimiter) Release(ctx context.Context, n int64) error {
	if n < 1 {
		return fmt.Errorf("%w: %d permits to give back", limiter.ErrInvalidCost, n)
	}
	var err error
	for n > 0 && err == nil {
		n, err = r.number(ctx, "release", "grant", n)
	}
	r.invalidate()
	return err
}

// Delete deletes the limiter with its config, and reports whether it existed.
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

// Expire sets the time to live of the limiter's keys, including its config, atomically,
// and reports whether it existed. Of a Fixed limiter it is only that of the config.
func (r *RateLimiter) Expire(ctx context.Context, d time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.store.timeout)
	defer cancel()
	var there []*redis.BoolCmd
	keys := r.keys
	if r.format == limiter.RedissonWindow { // which has its own end
		keys = keys[:1]
	}
	_, err := r.store.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			there = append(there, p.PExpire(ctx, key, d))
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("expire: %w: %w", limiter.ErrUnavailable, err)
	}
	return there[0].Val(), nil
}

// number runs a file of lua/redisson whose reply is a number. verb is for errors.
func (r *RateLimiter) number(ctx context.Context, verb, file string, args ...any) (int64, error) {
	list, err := r.run(ctx, verb, file, args...)
	if err != nil {
		return 0, err
	}
	n, err := countOf(list, nil)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", verb, err)
	}
	return n, nil
}

func (r *RateLimiter) run(ctx context.Context, verb, file string, args ...any) ([]int64, error) {
	args = append([]any{"", "", "", r.format.String()}, args...)
	list, err := r.store.run(ctx, r.store.redissonCommand(r.format, file, r.keys, args))
	switch {
	case redis.HasErrorPrefix(err, "UNSET"):
		return nil, ErrNoRate
	case redis.HasErrorPrefix(err, "COST"):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", verb, limiter.ErrUnavailable, err)
	}
	return list, nil
}

// invalidate removes the store's cached refusals for the limiter.
func (r *RateLimiter) invalidate() {
	r.store.refusals.invalidateClaims([]limiter.Claim{{RedissonName: r.name}})
}

// ErrRedisson reports that a limiter shared with Redisson cannot be used: a key has another
// type, the rate or interval is not valid, or the entries have several formats. The error
// says which. Nothing was taken or written. It also wraps limiter.ErrUnavailable, but is
// no evidence about the health of Redis.
var ErrRedisson = fmt.Errorf("%w: limiter shared with Redisson cannot be used", limiter.ErrUnreadable)

// redissonCommand returns a command of a file of lua/redisson, for a format. A limiter shared
// with Redisson has a script call of its own, because other programs write its keys, and
// their errors must not affect other claims.
func (s *Store) redissonCommand(f limiter.RedissonFormat, file string, keys []string, args []any) changeCommand {
	folder := "redisson/"
	if f == limiter.RedissonWindow {
		folder = "redisson_window/"
	}
	return changeCommand{script: s.scripts.get(scriptName{name: folder + file}), keys: keys, args: args, isRedisson: true}
}

// redissonKeysOf returns the keys of a limiter in the order of Redisson, all in the same slot.
func redissonKeysOf(name, client string) []string {
	slot := name
	if !strings.Contains(name, "{") {
		slot = "{" + name + "}"
	}
	value, permits := slot+":value", slot+":permits"
	return []string{name, value, value + ":" + client, permits, permits + ":" + client}
}

// redissonArgs returns the script arguments: the limit that applies if the limiter has no
// config, and the requests.
func redissonArgs(c limiter.Claim, rest ...any) []any {
	r := c.Limit.Rate
	return append([]any{r.Count, r.Window.Milliseconds(), int(c.Limit.Scope), c.RedissonFormat.String()}, rest...)
}

// redissonRequest appends a request for lua/redisson/decide.lua.
func (p *payload) redissonRequest(id [16]byte, cost int64) {
	p.requests = append(p.requests, id[:idBytes]...)
	p.requests = binary.LittleEndian.AppendUint32(p.requests, uint32(cost))
}

// peekRedisson is Peek for one shared limiter.
func (s *Store) peekRedisson(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	c := claims[0]
	var p payload
	p.redissonRequest([16]byte{}, c.Cost)
	list, err := s.run(ctx, s.changeOf("peek", claims, p.requests))
	if err == nil {
		err = readOne(list, claims, d)
	}
	if err != nil {
		return fmt.Errorf("look at a Redisson limiter: %w: %w", limiter.ErrUnavailable, err)
	}
	return nil
}

// redissonError converts a script's error to ErrRedisson.
func redissonError(err error) error {
	if !redis.HasErrorPrefix(err, "UNSHARED") {
		return err
	}
	return fmt.Errorf("%w: %s", ErrRedisson, strings.TrimPrefix(err.Error(), "UNSHARED "))
}
