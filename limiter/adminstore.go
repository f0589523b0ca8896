package limiter

import (
	"context"
	"errors"
	"time"
)

// ErrNotHeld reports that Renew was called for a permit that is no longer held: its lease
// expired, or it was refunded.
var ErrNotHeld = errors.New("permit no longer held")

// An AdminStore is a Store with operations for operators (Inspect, Reset, Grant, Ban) and
// for holders of concurrent permits (Renew). Memory and redisstore.Store are AdminStores.
type AdminStore interface {
	Store

	// Renew restarts the leases of the permits that p identifies. All claims must be of
	// Concurrent limits. It returns ErrNotHeld if at least one permit is no longer held;
	// the others are renewed.
	Renew(ctx context.Context, claims []Claim, p Permit) error

	// Inspect returns the status of each claim's key under its limit, without changing
	// it. Cost and Value of the claims are ignored.
	Inspect(ctx context.Context, claims []Claim) (Inspection, error)

	// Reset deletes all state of these claims' keys under their limits, including bans.
	Reset(ctx context.Context, claims []Claim) error

	// Grant returns Cost permits to each claim's key, as if the most recent ones had not
	// been taken. A key never gets more than the capacity of the limit.
	Grant(ctx context.Context, claims []Claim) error

	// Ban makes the limits refuse all claims of these keys for d from now on; 0 ends a
	// ban. Permits continue to expire during a ban.
	Ban(ctx context.Context, claims []Claim, d time.Duration) error
}

// CheckBan returns an error that wraps ErrInvalidLimit if d is not a valid duration of a
// ban: whole milliseconds, from 0 to MaxWindow.
func CheckBan(d time.Duration) error {
	if d < 0 || d > MaxWindow || d%time.Millisecond != 0 {
		return errBan
	}
	return nil
}

var errBan = errors.Join(ErrInvalidLimit, errors.New("a ban lasts whole milliseconds, at most 366d"))
