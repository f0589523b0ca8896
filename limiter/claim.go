package limiter

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Errors of a Store. All others wrap ErrUnavailable.
var (
	// ErrUnavailable reports that the store did not reply in time: it is unknown whether
	// permits were taken. It is not a refusal.
	ErrUnavailable = errors.New("limiter store unavailable")
	// ErrCost reports a cost below 1, or above the maximum of the limit. No permits were
	// taken, and no store was asked.
	ErrCost = errors.New("cost outside 1 to the rate's count")
	// ErrLimit reports an invalid limit. No permits were taken.
	ErrLimit = errors.New("limit not valid")
)

// A Limit is a named rate and its algorithm, applied to each key separately. It is
// immutable, and shared by all claims. A changed limit with the same Name continues with
// the same counts.
type Limit struct {
	// Name identifies the limit in a store. It must not be empty or contain braces or
	// whitespace: "sms-send.phone:1m".
	Name string
	Rate Rate
	// Algorithm is TokenBucket when zero.
	Algorithm Algorithm
	// Burst, for GCRA only, is the number of permits that may be taken at once. 0 means
	// Rate.Count.
	Burst int64
	// Scope is Overall when zero.
	Scope Scope
	// Steps, for Cooldown only, are the intervals after the first permit, the second and so
	// on, in ascending order. The slice must not be changed.
	Steps []time.Duration
}

// A Key identifies what is counted.
type Key [16]byte

// KeyOf returns the key for the given parts. Each part is prefixed with its length before
// hashing (SHA-256, truncated to 16 bytes), so that ("ab", "c") and ("a", "bc") are
// different keys.
func KeyOf(parts ...string) Key {
	var room [256]byte // avoids an allocation for most keys
	sum := sha256.Sum256(appendParts(room[:0], parts))
	return Key(sum[:len(Key{})])
}

// KeyWithSecret is KeyOf with HMAC-SHA256: without the secret, the parts cannot be found by
// brute force.
func KeyWithSecret(secret []byte, parts ...string) Key {
	var room [256]byte
	h := hmac.New(sha256.New, secret)
	h.Write(appendParts(room[:0], parts))
	var out [sha256.Size]byte
	return Key(h.Sum(out[:0])[:len(Key{})])
}

// appendParts appends each part with its length.
func appendParts(b []byte, parts []string) []byte {
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}

// String returns k in lower-case hexadecimal, 32 characters.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// A Claim is a request for Cost permits of one limit under one key.
type Claim struct {
	Limit *Limit
	Key   Key
	// Cost is 1 to Limit.Most(); always 1 for Distinct.
	Cost int64
	// Value, for Distinct only, is the value used with the key. Values are distinguished by
	// their first 8 bytes.
	Value Key
	// Redisson is the name of the RRateLimiter that counts this claim, shared with Java
	// programs; if empty, the store uses its own name for Limit and Key. If the
	// RRateLimiter is configured in Redis, that configuration determines rate, window and
	// scope instead of Limit. Memory ignores the name.
	Redisson string
	// Source identifies who sent the key, so that a single source cannot use all the memory
	// that a Memory has for new keys; 0 means none. It does not affect counts, and stores
	// without such a bound ignore it.
	Source uint32
	// RedissonForm is the data format for that RRateLimiter, if it has no entries yet.
	RedissonForm RedissonForm
}

// Check returns an error that wraps ErrCost or ErrLimit if no store could grant c.
func (c Claim) Check() error { return c.check() }

func (c *Claim) check() error {
	if c.Limit == nil {
		return fmt.Errorf("%w: a claim without a limit", ErrLimit)
	}
	if err := c.Limit.Check(); err != nil {
		return err
	}
	if c.Redisson != "" {
		if c.Limit.Algorithm != TokenBucket {
			return fmt.Errorf("%w: %s shares a limiter with Redisson, which is a token bucket", ErrLimit, c.Limit.Name)
		}
		if err := CheckRedissonName(c.Redisson); err != nil {
			return err
		}
		if c.RedissonForm > RedissonWindow {
			return fmt.Errorf("%w: %s has the unknown form %d of Redisson's", ErrLimit, c.Limit.Name, c.RedissonForm)
		}
	}
	if c.Limit.Algorithm == Distinct && c.Cost != 1 {
		return fmt.Errorf("%w: %d permits of %s, which counts values", ErrCost, c.Cost, c.Limit.Name)
	}
	if c.Cost < 1 || c.Cost > c.Limit.Most() {
		return fmt.Errorf("%w: %d permits of %s, which has %d", ErrCost, c.Cost, c.Limit.Name, c.Limit.Most())
	}
	return nil
}

// Check returns an error that wraps ErrLimit if l is invalid.
func (l *Limit) Check() error {
	if l.Name == "" || !isName(l.Name) {
		return fmt.Errorf("%w: the name %q; it is not empty and holds neither braces nor blanks", ErrLimit, l.Name)
	}
	if err := l.Rate.Check(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrLimit, l.Name, err)
	}
	if l.Scope > PerClient {
		return fmt.Errorf("%w: %s has the unknown scope %d", ErrLimit, l.Name, l.Scope)
	}
	return l.checkAlgorithm()
}

// isName reports whether s has no braces and no whitespace. It is called for each decision.
func isName(s string) bool {
	for i := range len(s) {
		switch s[i] {
		case '{', '}', ' ', '\t', '\r', '\n':
			return false
		}
	}
	return true
}

// MaxClaims is the maximum number of claims of a decision.
const MaxClaims = 128

// CheckAll returns the first error of claims, or one that wraps ErrLimit if there are more
// than MaxClaims, or if two have the same limit and the same key: add their costs in one
// claim instead. It allocates only for an error.
func CheckAll(claims []Claim) error {
	if len(claims) > MaxClaims {
		return fmt.Errorf("%w: %d claims in one decision; the most is %d", ErrLimit, len(claims), MaxClaims)
	}
	for i := range claims {
		c := &claims[i] // avoids copying it
		if err := c.check(); err != nil {
			return err
		}
		for j := range claims[:i] {
			earlier := &claims[j]
			if earlier.Key == c.Key && earlier.Limit.Name == c.Limit.Name ||
				c.Redisson != "" && earlier.Redisson == c.Redisson {
				return fmt.Errorf("%w: two claims of %s under one key", ErrLimit, c.Limit.Name)
			}
		}
	}
	return nil
}

// A Store keeps counts and decides claims. All methods are safe for concurrent use.
type Store interface {
	// Take decides all claims of a request in one atomic step: either all are granted, and
	// d.Permit can refund them, or no permits are taken. It fills d, reusing d.Outcomes. It
	// waits no longer than ctx allows. If it returns an error, d is undefined. A refusal is
	// not an error.
	Take(ctx context.Context, claims []Claim, d *Decision) error

	// Refund returns the permits that the decision with permit p took for these claims. It
	// is idempotent: exactly those permits are returned, and only once. Permits that have
	// already returned are not returned again.
	Refund(ctx context.Context, claims []Claim, p Permit) error

	// Peek returns the decision that Take would make, without taking permits or writing
	// anything.
	Peek(ctx context.Context, claims []Claim, d *Decision) error
}
