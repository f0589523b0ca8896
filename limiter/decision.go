package limiter

import (
	"sync/atomic"
	"time"
)

// A Decision is the result for the claims of one request.
type Decision struct {
	// Allowed is true if every claim was granted. If it is false, nothing was taken.
	Allowed bool
	// Wait is the time until all claims would be granted if there were no other
	// requests: the longest Wait of the refused outcomes. It is 0 if Allowed.
	Wait time.Duration
	// At is the time of the decision, by the store's clock.
	At time.Time
	// Permit identifies the permits that were taken, for Refund. It is the zero
	// Permit if not Allowed.
	Permit Permit
	// Outcomes has one entry for each claim, in the order of the claims.
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
	// known to refuse. Then Allowed is true, and Remaining and Wait are meaningless.
	Unknown bool
}

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
