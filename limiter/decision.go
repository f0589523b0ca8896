package limiter

import "time"

// A Decision is the answer to the claims of one request.
type Decision struct {
	// Allowed says that every claim was granted. When it is false, nothing was
	// taken at all.
	Allowed bool
	// Wait is how long until all claims would pass together if nobody else
	// came: the longest Wait of a refused outcome. It is 0 when Allowed.
	Wait time.Duration
	// At is when it was decided, by the store's clock.
	At time.Time
	// Permit gives back what was taken. It is the zero Permit when not Allowed.
	Permit Permit
	// Outcomes has one entry a claim, in the order of the claims.
	Outcomes []Outcome
}

// An Outcome is what one limit says of one claim, the others left aside.
type Outcome struct {
	// Allowed says that this limit would have granted the claim.
	Allowed bool
	// Remaining is how many permits are left now, this decision counted.
	Remaining int64
	// Wait is how long until the same claim would pass (again); 0 means at
	// once, which for a value of Distinct that stands holds whatever Remaining is.
	// It is exact, and never longer than Limit.Horizon unless the key is
	// banned.
	Wait time.Duration
	// Banned says that the key was banned: nothing is left until Wait is over,
	// whatever the rate.
	Banned bool
	// Unknown says that this limit was not asked, because another one was known to
	// refuse: Allowed is true, and Remaining and Wait mean nothing.
	Unknown bool
}

// A Permit is the right to give back what one decision took. The zero Permit
// gives back nothing.
type Permit struct {
	// ID is random and unique to the decision.
	ID [16]byte
	// At is when the permits were taken, by the store's clock.
	At time.Time
}

// IsZero reports whether p gives back nothing.
func (p Permit) IsZero() bool { return p.At.IsZero() }
