package limiter

import (
	"context"
	"errors"
	"time"
)

// ErrReturned reports that a permit cannot be renewed because it has already returned: its
// lease ended, or it was refunded.
var ErrReturned = errors.New("permit has come back")

// An AdminStore is a Store with operations for operators, and with renewal of concurrent
// permits. Memory and redisstore.Store implement it.
type AdminStore interface {
	Store

	// Renew restarts the leases of the permits that p holds for these claims, all of which
	// are Concurrent. ErrReturned reports that at least one has already returned; the
	// others are renewed.
	Renew(ctx context.Context, claims []Claim, p Permit) error

	// Inspect returns the state of the claims' keys under their limits. It takes no permits
	// and writes nothing. Cost and Value of claims are ignored.
	Inspect(ctx context.Context, claims []Claim) (Inspection, error)

	// Reset deletes all counts and bans of the claims' keys under their limits.
	Reset(ctx context.Context, claims []Claim) error

	// Grant returns Cost permits to each claim's key, the latest ones first, up to the
	// limit's maximum.
	Grant(ctx context.Context, claims []Claim) error

	// Ban refuses the claims' keys under their limits for d from now on; 0 ends a ban.
	// Permits that were taken return meanwhile.
	Ban(ctx context.Context, claims []Claim, d time.Duration) error
}

// CheckBan returns an error that wraps ErrLimit if d is not a valid length of a ban.
func CheckBan(d time.Duration) error {
	if d < 0 || d > MaxWindow || d%time.Millisecond != 0 {
		return errBan
	}
	return nil
}

var errBan = errors.Join(ErrLimit, errors.New("a ban lasts whole milliseconds, at most 366d"))
