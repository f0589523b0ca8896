package limiter

import "time"

// A Decision is the result for all claims of one request.
type Decision struct {
	// Allowed is true if every claim was granted. If it is false, no permits were taken.
	Allowed bool
	// Wait is the time until all claims would be granted together, without other requests:
	// the longest Wait of the refused outcomes. It is 0 if Allowed.
	Wait time.Duration
	// At is the time of the decision, by the store's clock.
	At time.Time
	// Permit refunds what was taken. It is zero if not Allowed.
	Permit Permit
	// Outcomes has one entry per claim, in the order of the claims.
	Outcomes []Outcome
}

// An Outcome is the result of one limit for one claim, independent of the others.
type Outcome struct {
	// Allowed is true if this limit would grant the claim.
	Allowed bool
	// Remaining is the number of permits left after this decision.
	Remaining int64
	// Wait is the time until the same claim would be granted (again); 0 means at once,
	// which for a Distinct value that still counts is independent of Remaining. It is
	// exact, and never longer than Limit.Horizon unless the key is banned.
	Wait time.Duration
	// Banned is true if the key is banned: no permits are granted until Wait has passed,
	// whatever the rate.
	Banned bool
	// Unknown is true if this limit was not asked, because another one was known to refuse:
	// Allowed is then true, and Remaining and Wait are undefined.
	Unknown bool
}

// A Permit identifies the permits of one decision, for a refund. The zero Permit refunds
// nothing.
type Permit struct {
	// ID is random and unique to the decision.
	ID [16]byte
	// At is the time at which the permits were taken, by the store's clock.
	At time.Time
}

// IsZero reports whether p refunds nothing.
func (p Permit) IsZero() bool { return p.At.IsZero() }
