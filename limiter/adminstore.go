package limiter

import (
	"context"
	"errors"
	"time"
)

// ErrNotHeld reports that a permit to be renewed has come back already: its
// lease ran out, or it was given back.
var ErrNotHeld = errors.New("permit has come back")

// An AdminStore is a Store that lets an operator change what is counted, and the
// holder of concurrent permits hold on. Memory and redisstore.Store are AdminStores.
type AdminStore interface {
	Store

	// Renew makes the leases of what p took for these claims, all of them
	// Concurrent, begin again. ErrNotHeld reports that one or more had come
	// back; the others are renewed.
	Renew(ctx context.Context, claims []Claim, p Permit) error

	// Inspect says how the keys of claims stand under their limits. It takes nothing
	// and writes nothing. Costs and values of claims mean nothing to it.
	Inspect(ctx context.Context, claims []Claim) (Inspection, error)

	// Reset forgets everything that is counted for these claims' keys under
	// their limits, and bans.
	Reset(ctx context.Context, claims []Claim) error

	// Grant gives each claim's key Cost permits on top, as if its latest had not
	// been taken, but never more than the limit has.
	Grant(ctx context.Context, claims []Claim) error

	// Ban lets these claims' keys have nothing under their limits for so long,
	// from now on; 0 ends a ban. What was taken comes back meanwhile.
	Ban(ctx context.Context, claims []Claim, d time.Duration) error
}

// CheckBan returns an error that wraps ErrInvalidLimit if d is no length of a ban.
func CheckBan(d time.Duration) error {
	if d < 0 || d > MaxWindow || d%time.Millisecond != 0 {
		return errBan
	}
	return nil
}

var errBan = errors.Join(ErrInvalidLimit, errors.New("a ban lasts whole milliseconds, at most 366d"))
