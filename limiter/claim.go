package limiter

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
)

// Errors of a Store. All other errors wrap ErrUnavailable, and so does ErrUnreadable.
var (
	// ErrUnavailable reports that the store did not reply in time. It is unknown whether
	// permits were taken. It is not a refusal.
	ErrUnavailable = errors.New("limiter store unavailable")
	// ErrUnreadable reports that the store has replied, and holds something else than a limit
	// keeps there. Nothing was taken, and other decisions are not affected.
	ErrUnreadable = errors.New("unreadable")
	// ErrInvalidCost reports that the cost of a claim is less than 1 or more than the
	// capacity of its limit. Nothing was taken and the store was not called.
	ErrInvalidCost = errors.New("cost outside 1 to the rate's count")
	// ErrInvalidLimit reports that the limit of a claim is not valid. Nothing was taken.
	ErrInvalidLimit = errors.New("limit not valid")
)

// A Limit is a named rate that applies to each key separately. It must not be changed
// after its first use, and is shared by all claims under it. A new Limit with the same
// Name continues with the counts of the old one.
type Limit struct {
	// Name identifies the limit in a store. It is not empty and contains neither
	// braces nor whitespace, for example "sms-send.phone:1m".
	Name string
	Rate Rate
	// Algorithm is TokenBucket by default.
	Algorithm Algorithm
	// Burst is the number of permits that may be taken at once. Only GCRA uses it; 0
	// means Rate.Count.
	Burst int64
	// Scope is Overall by default.
	Scope Scope
	// Steps are the pauses of a Cooldown limit: after the first permit, after the second
	// and so on. None is shorter than the one before. The slice must not be changed.
	Steps []time.Duration
	// Noted limits note the permits of claims with a Value, the subject, under that subject until
	// they expire: AdminStore.Return returns them. The limit must have a rate and the scope Overall.
	Noted bool
	// Conversion is the percentage, 1 to 100, of the permits beyond Rate.Count that must be
	// returned. Only the algorithm Conversion uses it.
	Conversion int
	// Owner is what the limit belongs to, for the caller. Stores ignore it.
	Owner any

	prepared *preparedLimit // nil before Prepare
	whole    *Limit         // of what Share returns, the limit that it is a share of
	parts    int64          // and among how many processes that is divided
}

// A preparedLimit is what is remembered of a valid limit.
type preparedLimit struct {
	limit  *Limit // in a copy, whose fields may have been changed, this is another Limit
	number atomic.Pointer[limitNumber]
}

// isPrepared reports whether l itself, and not the Limit that it is a copy of, is prepared.
func (l *Limit) isPrepared() bool { return l.prepared != nil && l.prepared.limit == l }

// A Key identifies the entity that is counted, such as a user or an address. KeyOf and
// KeyWithSecret make one.
type Key [16]byte

// KeyOf hashes parts to a Key (SHA-256, cut to 16 bytes). Each part is prefixed with its
// length before hashing, so that ("ab", "c") and ("a", "bc") are different keys.
func KeyOf(parts ...string) Key {
	var buf [256]byte // large enough for most keys, so that they do not allocate
	sum := sha256.Sum256(appendParts(buf[:0], parts))
	return Key(sum[:len(Key{})])
}

// KeyWithSecret is like KeyOf, but uses HMAC-SHA256 with secret. Without the secret, the
// text of a key cannot be found by trying all possible texts.
func KeyWithSecret(secret []byte, parts ...string) Key {
	var buf [256]byte
	h := hmac.New(sha256.New, secret)
	h.Write(appendParts(buf[:0], parts))
	var out [sha256.Size]byte
	return Key(h.Sum(out[:0])[:len(Key{})])
}

// appendParts appends each part, preceded by its length.
func appendParts(b []byte, parts []string) []byte {
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}

// String returns k as 32 lower-case hexadecimal digits.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// A Claim is a request for Cost permits of one limit under one key.
type Claim struct {
	Limit *Limit
	Key   Key
	// Cost is the number of permits, from 1 to Limit.Capacity; for Distinct it is 1.
	Cost int64
	// Taken is how many permits were taken if a refund is of a part of them; 0 if Cost is all. Only limits shared
	// with Redisson need it.
	Taken int64
	// Value is what the key is used with. Distinct limits count it, comparing the first 8
	// bytes. For Noted limits it is the subject; if it is zero, nothing is noted.
	Value Key
	// RedissonName is the name of the Redisson RRateLimiter that counts this claim,
	// shared with Java programs. If it is empty, the store derives a name from Limit and
	// Key. If the limiter has a config in Redis, its rate, window and type are used
	// instead of those of Limit. A Memory ignores it.
	RedissonName string
	// Source identifies who sends the key, for example a client's network, so that one
	// source cannot use up the capacity of a Memory with new keys; 0 means unknown. It
	// does not affect counts. A store without such a bound ignores it.
	Source uint32
	// RedissonFormat is the data format of that limiter.
	RedissonFormat RedissonFormat
	// Group is the group of the claim. The claims of one decision are in ascending order of
	// their groups. Those of group 0 decide. Each other group is decided for itself, if group
	// 0 was granted, and refuses nothing.
	Group uint8
}

// Check returns an error that wraps ErrInvalidCost or ErrInvalidLimit if no store could
// grant c.
func (c Claim) Check() error { return c.check() }

func (c *Claim) check() error {
	if c.Limit == nil {
		return fmt.Errorf("%w: claim without a limit", ErrInvalidLimit)
	}
	if !c.Limit.isPrepared() {
		if err := c.Limit.Check(); err != nil {
			return err
		}
	}
	if c.RedissonName != "" {
		if !c.Limit.Algorithm.IsRedisson() {
			return fmt.Errorf("%w: %s uses a Redisson limiter, so its algorithm must be token_bucket", ErrInvalidLimit, c.Limit.Name)
		}
		if err := CheckRedissonName(c.RedissonName); err != nil {
			return err
		}
		if c.Limit.Noted {
			return fmt.Errorf("%w: %s uses a Redisson limiter, so it cannot be noted", ErrInvalidLimit, c.Limit.Name)
		}
		if c.RedissonFormat > RedissonWindow {
			return fmt.Errorf("%w: %s has the unknown Redisson format %d", ErrInvalidLimit, c.Limit.Name, c.RedissonFormat)
		}
	}
	if c.Cost != 1 && c.Limit.Algorithm.HasValues() {
		return fmt.Errorf("%w: %d permits of %s; the cost of a distinct limit is 1", ErrInvalidCost, c.Cost, c.Limit.Name)
	}
	if c.Cost < 1 || c.Cost > c.Limit.Capacity() {
		return fmt.Errorf("%w: %d permits of %s, whose capacity is %d", ErrInvalidCost, c.Cost, c.Limit.Name, c.Limit.Capacity())
	}
	return nil
}

// Prepare checks l once, so that stores do not check it for each claim. It must be called
// before l is used; a copy of l must be prepared itself. If l is not valid, Prepare returns
// the error of Check, and so do the stores.
func (l *Limit) Prepare() error {
	l.prepared = nil
	err := l.Check()
	if err == nil {
		l.prepared = &preparedLimit{limit: l}
	}
	return err
}

// Check returns an error that wraps ErrInvalidLimit if a field of l is not valid.
func (l *Limit) Check() error {
	if l.Name == "" || !isName(l.Name) {
		return fmt.Errorf("%w: the name %q; it must not be empty or contain braces or whitespace", ErrInvalidLimit, l.Name)
	}
	if err := l.Rate.Check(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidLimit, l.Name, err)
	}
	if l.Scope > PerClient {
		return fmt.Errorf("%w: %s has the unknown scope %d", ErrInvalidLimit, l.Name, l.Scope)
	}
	if err := l.checkNoted(); err != nil {
		return err
	}
	return l.checkAlgorithm()
}

// isName reports whether s contains neither braces nor whitespace. It is called for each
// decision under a limit that is not prepared.
func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c <= ' ' || c >= '{') && strings.IndexByte("{} \t\r\n", c) >= 0 { // the first is false for most
			return false
		}
	}
	return true
}

// MaxClaims is the largest number of claims of one decision, all groups together.
const MaxClaims = 128

// CheckClaims returns the first error of the claims' Check. It returns an error that
// wraps ErrInvalidLimit if there are more than MaxClaims, or if two of them have the same
// limit and key; such costs must be added up in one claim. It does not allocate if the
// claims are valid.
func CheckClaims(claims []Claim) error {
	if len(claims) > MaxClaims {
		return fmt.Errorf("%w: %d claims in one decision; the maximum is %d", ErrInvalidLimit, len(claims), MaxClaims)
	}
	for i := range claims {
		c := &claims[i] // a Claim is too large to copy
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

// CheckCharges returns an error that wraps ErrInvalidCost or ErrInvalidLimit if no store could charge the claims.
func CheckCharges(claims []Claim) error {
	for _, c := range claims {
		if c.Cost < 1 || c.Cost > MaxCount {
			return fmt.Errorf("%w: %d more permits of %s", ErrInvalidCost, c.Cost, c.Limit.Name)
		}
		if a := c.Limit.Algorithm; !a.HasDebt() || c.RedissonName != "" {
			return fmt.Errorf("%w: %s owes nothing, because it is of %s or shared with Redisson", ErrInvalidLimit, c.Limit.Name, a)
		}
		c.Cost = 1
		if err := c.check(); err != nil {
			return err
		}
	}
	return nil
}

// CutDeciding returns the claims of group 0, which may be none, and those of the other groups.
func CutDeciding(claims []Claim) (own, others []Claim) {
	if len(claims) > 0 && claims[0].Group > 0 {
		return nil, claims
	}
	return CutGroup(claims)
}

// CutGroup returns the claims of the first group, and those of the others.
func CutGroup(claims []Claim) (group, others []Claim) {
	n := 0
	for n < len(claims) && claims[n].Group == claims[0].Group {
		n++
	}
	return claims[:n], claims[n:]
}

// CheckGroup returns the error of CheckClaims for a group, or one that wraps ErrInvalidLimit if a decision about it and
// the claims before it, of which there are asked, would have more than MaxClaims.
func CheckGroup(group []Claim, asked int) error {
	if n := asked + len(group); n > MaxClaims {
		return fmt.Errorf("%w: %d claims of all groups; the maximum is %d", ErrInvalidLimit, n, MaxClaims)
	}
	return CheckClaims(group)
}

// A Store counts permits and decides claims. All methods are safe for concurrent use.
type Store interface {
	// Take takes the permits of all claims of group 0 in one atomic step. If every one is
	// granted, d.Permit identifies the permits for Refund; otherwise nothing is taken. Then
	// it takes those of each other group, all of them or none, under the same permit. No two
	// claims may be the same limit on the same key. Take overwrites d, reusing d.Outcomes.
	// It waits no longer than ctx allows. If it returns an error, d is not valid; what fails
	// of another group than 0 fails that group alone.
	Take(ctx context.Context, claims []Claim, d *Decision) error

	// Refund returns the permits that the decision with the permit p took for these
	// claims. It is idempotent: however often it is called, each permit is returned once,
	// and permits that have expired are not returned again. A claim that costs less than
	// what was taken returns that much, and the others are not returned any more; of a
	// limiter that is shared with Redisson it returns nothing.
	Refund(ctx context.Context, claims []Claim, p Permit) error

	// Peek fills d with the decision that Take would make, without changing anything.
	Peek(ctx context.Context, claims []Claim, d *Decision) error
}

// ClientAddr returns the address by which a client counts: IPv4 for an address that stands for one, which is
// ::ffff:192.0.2.1, and 64:ff9b::192.0.2.1 of a translator (NAT64, RFC 6052) unless that must not have it, as 10.0.0.1;
// and none has a zone.
func ClientAddr(a netip.Addr) netip.Addr {
	if a = a.Unmap(); a.Is4() {
		return a
	}
	a = a.WithZone("")
	if v4, ok := translated(a); ok && v4.IsGlobalUnicast() && !v4.IsPrivate() {
		return v4
	}
	return a
}

// Subscriber returns the ClientAddr of an address, or its /64 network, which is what one subscriber has in IPv6. It is the zero
// Prefix if the address is not valid.
func Subscriber(a netip.Addr) netip.Prefix {
	a = ClientAddr(a)
	p, _ := a.Prefix(min(a.BitLen(), 64)) // fails only if a is not valid
	return p
}

// IsTranslated reports whether p is a network of a translator, by which no client counts.
func IsTranslated(p netip.Prefix) bool {
	v4, ok := translated(p.Addr())
	return ok && p.Bits() >= nat64Bits && !v4.IsPrivate()
}

// nat64Bits is the length of the well-known prefix of translators, 64:ff9b::. Of 64:ff9b:1::/48, for local use,
// nobody knows where the IPv4 address is.
const nat64Bits = 96

// translated returns the IPv4 address in one with the prefix of translators.
func translated(a netip.Addr) (v4 netip.Addr, ok bool) {
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[nat64Bits/8:])), [nat64Bits / 8]byte(b[:]) == [nat64Bits / 8]byte{1: 0x64, 2: 0xff, 3: 0x9b}
}

// A Decision is the result for the claims of one request.
type Decision struct {
	// Allowed is true if every claim of group 0 was granted. If it is false, nothing was taken.
	Allowed bool
	// Wait is the time until all claims of group 0 would be granted if there were no other
	// requests: the longest Wait of the refused outcomes. It is 0 if Allowed.
	Wait time.Duration
	// At is the time of the decision, by the store's clock.
	At time.Time
	// Permit identifies the permits that were taken, for Refund. It is the zero
	// Permit if not Allowed.
	Permit Permit
	// Outcomes has one entry for each claim, in the order of the claims. If not Allowed, there
	// are only those of group 0.
	Outcomes []Outcome
	// Repeats is not nil if the store did not evaluate the claims again, but repeated its
	// refusal of one of them. All decisions that repeat it share the Refusal.
	Repeats *Refusal
}

// A Refusal is a refusal that a store may repeat.
type Refusal struct {
	mirroredBy atomic.Pointer[Memory] // has recorded it by Mirror
}

// An Outcome is the part of a Decision about one claim, regardless of the other claims.
type Outcome struct {
	// Allowed is true if this limit would have granted the claim.
	Allowed bool
	// Remaining is the number of permits that are available after this decision.
	Remaining int64
	// Wait is the exact time until the same claim would be granted (again); 0 means
	// now. An active value of a Distinct limit never waits, whatever Remaining is.
	// Wait is at most Limit.Horizon unless the key is banned.
	Wait time.Duration
	// Banned is true if the key is banned: no claim is granted until Wait is over,
	// whatever the rate.
	Banned bool
	// Unknown is true if this limit was not evaluated because another limit was already
	// known to refuse. Then Allowed is true, and Remaining and Wait are meaningless. It is
	// also true, and Allowed is false, of a group that could not be decided.
	Unknown bool
}

// AddFailed adds the outcomes of n claims whose group could not be decided.
func (d *Decision) AddFailed(n int) {
	for range n {
		d.Outcomes = append(d.Outcomes, Outcome{Unknown: true})
	}
}

// IsFailed reports whether the group of a claim could not be decided.
func (o *Outcome) IsFailed() bool { return o.Unknown && !o.Allowed }

// A Permit identifies the permits that one decision took, for a refund. Refunding the
// zero Permit does nothing.
type Permit struct {
	// ID is random and unique for each decision.
	ID [16]byte
	// At is the time at which the permits were taken, by the store's clock.
	At time.Time
}

// IsZero reports whether p is the zero Permit, which identifies no permits.
func (p Permit) IsZero() bool { return p.At.IsZero() }

// Charge returns the permit under which stores count what AdminStore.Charge takes for p.
func (p Permit) Charge() Permit {
	p.ID[0] = ^p.ID[0]
	return p
}
