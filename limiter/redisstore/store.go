package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// DefaultTimeout is how long one decision may wait for Redis.
const DefaultTimeout = 50 * time.Millisecond

// DefaultPrefix begins the names of all keys in Redis.
const DefaultPrefix = "weir"

// Options are what a Store may be told. The zero value means the defaults.
type Options struct {
	// Prefix begins all keys; DefaultPrefix when empty. It holds no braces.
	Prefix string
	// Timeout is the most one call may take, whatever the caller's context
	// says; DefaultTimeout when zero.
	Timeout time.Duration
}

// A Store is a limiter.Store in Redis. All methods are safe for concurrent use
// and wait for Redis no longer than the context and Options.Timeout allow. An
// error of Redis wraps limiter.ErrUnavailable.
type Store struct {
	client  redis.UniversalClient
	prefix  string
	timeout time.Duration
	scripts scripts
}

// New makes a Store that asks client, which it does not close. NewClient makes
// a client with the right settings; above all, it must not send a command again
// that timed out.
func New(client redis.UniversalClient, o Options) *Store {
	return newStore(client, o, clockLua)
}

func newStore(client redis.UniversalClient, o Options, clock string) *Store {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	return &Store{client: client, prefix: o.Prefix, timeout: o.Timeout, scripts: newScripts(clock)}
}

// Take implements limiter.Store: one round trip, one step in Redis.
func (s *Store) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	var id [16]byte
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	if err := s.decide(ctx, s.scripts.take, claims, id, d); err != nil {
		return err
	}
	if d.Allowed && len(claims) > 0 {
		d.Permit = limiter.Permit{ID: id, At: d.At}
	}
	return nil
}

// Peek implements limiter.Store.
func (s *Store) Peek(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	return s.decide(ctx, s.scripts.peek, claims, [16]byte{}, d)
}

// decide asks for one decision of take or peek.
func (s *Store) decide(ctx context.Context, sc script, claims []limiter.Claim, id [16]byte, d *limiter.Decision) error {
	if err := limiter.CheckAll(claims); err != nil {
		return err
	}
	b := newBatch(s.prefix, claims)
	b.request(id, claims, 1)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	reply, err := sc.run(ctx, s.client, b.keys, b.argv())
	if err != nil {
		return fmt.Errorf("decide %d claims: %w: %w", len(claims), limiter.ErrUnavailable, err)
	}
	at, rest, err := readTime(reply)
	if err == nil {
		rest, err = readDecision(rest, at, claims, d)
	}
	if err == nil && len(rest) > 0 {
		err = errReply
	}
	if err != nil {
		return fmt.Errorf("decide %d claims: %w: %w", len(claims), limiter.ErrUnavailable, err)
	}
	return nil
}

// Refund implements limiter.Store.
func (s *Store) Refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	if err := limiter.CheckAll(claims); err != nil {
		return err
	}
	if p.IsZero() || len(claims) == 0 {
		return nil
	}
	_, err := s.change(ctx, s.scripts.refund, claims, taken(claims, p)...)
	if err != nil {
		return fmt.Errorf("refund %d claims: %w", len(claims), err)
	}
	return nil
}

// taken tells a script what p took for claims.
func taken(claims []limiter.Claim, p limiter.Permit) []any {
	args := []any{p.ID[:idBytes], p.At.UnixMilli()}
	for _, c := range claims {
		args = append(args, c.Cost)
	}
	return args
}

// change runs a script that changes the windows of claims and answers with a
// number that is not negative. Its errors wrap limiter.ErrUnavailable.
func (s *Store) change(ctx context.Context, sc script, claims []limiter.Claim, rest ...any) (int64, error) {
	b := newBatch(s.prefix, claims, rest...)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	reply, err := sc.run(ctx, s.client, b.keys, b.argv())
	if err != nil {
		return 0, fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
	}
	n, ok := reply.(int64)
	if !ok || n < 0 {
		return 0, fmt.Errorf("%w: %w", limiter.ErrUnavailable, errReply)
	}
	return n, nil
}
