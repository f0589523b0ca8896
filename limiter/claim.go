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
	// ErrUnavailable reports that the store could not answer in time: it is not
	// known whether anything was taken. It is not a refusal.
	ErrUnavailable = errors.New("limiter store unavailable")
	// ErrInvalidCost reports that a claim asked for less than 1 permit or for more
	// than its rate ever holds. Nothing was taken and no store was asked.
	ErrInvalidCost = errors.New("cost outside 1 to the rate's count")
	// ErrInvalidLimit reports that a claim's limit is not valid. Nothing was taken.
	ErrInvalidLimit = errors.New("limit not valid")
)

// A Limit is one promise to each key. It is immutable and shared by all claims
// under it; a changed limit of the same Name goes on from the same counts.
type Limit struct {
	// Name tells limits apart in a store. It is not empty and holds neither
	// braces nor whitespace: "sms-send.phone:1m".
	Name string
	Rate Rate
	// Algorithm is TokenBucket when zero.
	Algorithm Algorithm
	// Burst is for GCRA alone: how many permits may be taken at once. 0 means
	// Rate.Count.
	Burst int64
	// Scope is Overall when zero.
	Scope Scope
	// Steps are for Cooldown alone: the pauses after the first permit, the second
	// and so on, each at least as long as the one before. It must not be changed.
	Steps []time.Duration
}

// A Key is who is counted.
type Key [16]byte

// KeyOf makes a key of the parts that a client sent. Each part is prefixed with
// its length before hashing (SHA-256, cut to 16 bytes), so that ("ab", "c") and
// ("a", "bc") are different keys.
func KeyOf(parts ...string) Key {
	var room [256]byte // so that most keys need no memory
	sum := sha256.Sum256(appendParts(room[:0], parts))
	return Key(sum[:len(Key{})])
}

// KeyWithSecret is KeyOf with HMAC-SHA256 under secret: without the secret
// nobody can find out which text a key was made of by trying all texts.
func KeyWithSecret(secret []byte, parts ...string) Key {
	var room [256]byte
	h := hmac.New(sha256.New, secret)
	h.Write(appendParts(room[:0], parts))
	var out [sha256.Size]byte
	return Key(h.Sum(out[:0])[:len(Key{})])
}

// appendParts appends each part behind its length.
func appendParts(b []byte, parts []string) []byte {
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}

// String is k in lower-case hexadecimal, 32 characters.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// A Claim asks for Cost permits of one limit under one key.
type Claim struct {
	Limit *Limit
	Key   Key
	// Cost is 1 to Limit.Capacity(); for Distinct always 1.
	Cost int64
	// Value is for Distinct alone: what the key is used with. Its first 8 bytes
	// tell values apart.
	Value Key
	// RedissonName names the RRateLimiter of Redisson that counts this claim, shared
	// with Java programs. Empty: the store's own name for Limit and Key. Its
	// config in Redis, once there, says rate, window and scope instead of Limit.
	// Memory goes by Limit and Key anyway.
	RedissonName string
	// Source tells apart who brings keys, so that nobody alone can take all the room
	// that a Memory has for new ones; 0 is nobody. It changes no count, and a store
	// without such a bound does not look at it.
	Source uint32
	// RedissonFormat is how that limiter keeps what was taken.
	RedissonFormat RedissonFormat
}

// Check returns an error that wraps ErrInvalidCost or ErrInvalidLimit if no store could ever
// grant c.
func (c Claim) Check() error { return c.check() }

func (c *Claim) check() error {
	if c.Limit == nil {
		return fmt.Errorf("%w: a claim without a limit", ErrInvalidLimit)
	}
	if err := c.Limit.Check(); err != nil {
		return err
	}
	if c.RedissonName != "" {
		if c.Limit.Algorithm != TokenBucket {
			return fmt.Errorf("%w: %s shares a limiter with Redisson, which is a token bucket", ErrInvalidLimit, c.Limit.Name)
		}
		if err := CheckRedissonName(c.RedissonName); err != nil {
			return err
		}
		if c.RedissonFormat > RedissonWindow {
			return fmt.Errorf("%w: %s has the unknown form %d of Redisson's", ErrInvalidLimit, c.Limit.Name, c.RedissonFormat)
		}
	}
	if c.Limit.Algorithm == Distinct && c.Cost != 1 {
		return fmt.Errorf("%w: %d permits of %s, which counts values", ErrInvalidCost, c.Cost, c.Limit.Name)
	}
	if c.Cost < 1 || c.Cost > c.Limit.Capacity() {
		return fmt.Errorf("%w: %d permits of %s, which has %d", ErrInvalidCost, c.Cost, c.Limit.Name, c.Limit.Capacity())
	}
	return nil
}

// Check returns an error that wraps ErrInvalidLimit if l breaks a rule of its fields.
func (l *Limit) Check() error {
	if l.Name == "" || !isName(l.Name) {
		return fmt.Errorf("%w: the name %q; it is not empty and holds neither braces nor blanks", ErrInvalidLimit, l.Name)
	}
	if err := l.Rate.Check(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidLimit, l.Name, err)
	}
	if l.Scope > PerClient {
		return fmt.Errorf("%w: %s has the unknown scope %d", ErrInvalidLimit, l.Name, l.Scope)
	}
	return l.checkAlgorithm()
}

// isName reports whether s has neither braces nor whitespace. Each decision
// asks.
func isName(s string) bool {
	for i := range len(s) {
		switch s[i] {
		case '{', '}', ' ', '\t', '\r', '\n':
			return false
		}
	}
	return true
}

// MaxClaims is how many claims one decision may have.
const MaxClaims = 128

// CheckClaims returns the first error of claims, or one that wraps ErrInvalidLimit when
// there are more than MaxClaims, or two name the same limit and the same key: ask
// for both costs in one claim instead. It does not allocate when there is nothing to say.
func CheckClaims(claims []Claim) error {
	if len(claims) > MaxClaims {
		return fmt.Errorf("%w: %d claims in one decision; the most is %d", ErrInvalidLimit, len(claims), MaxClaims)
	}
	for i := range claims {
		c := &claims[i] // which is too much to copy
		if err := c.check(); err != nil {
			return err
		}
		for j := range claims[:i] {
			earlier := &claims[j]
			if earlier.Key == c.Key && earlier.Limit.Name == c.Limit.Name ||
				c.RedissonName != "" && earlier.RedissonName == c.RedissonName {
				return fmt.Errorf("%w: two claims of %s under one key", ErrInvalidLimit, c.Limit.Name)
			}
		}
	}
	return nil
}

// A Store keeps counts. All methods are safe for concurrent use.
type Store interface {
	// Take asks for everything a request needs in one step: either all claims
	// are granted and d.Permit can give them back, or nothing is taken. It
	// fills d, reusing d.Outcomes, and waits no longer than ctx allows. When it
	// returns an error, d says nothing.
	Take(ctx context.Context, claims []Claim, d *Decision) error

	// Refund gives back what the decision that returned p took for these
	// claims: exactly those permits, and only once however often it is called.
	// What has already come back by itself is not given back again.
	Refund(ctx context.Context, claims []Claim, p Permit) error

	// Peek says what Take would say, takes nothing and writes nothing.
	Peek(ctx context.Context, claims []Claim, d *Decision) error
}
