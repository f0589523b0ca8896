package limiter

import (
	"context"
	"errors"
	"time"
)

// ErrNotHeld reports that Renew was called for a permit that is no longer held: its lease
// expired, or it was refunded.
var ErrNotHeld = errors.New("permit no longer held")

// An AdminStore is a Store with operations for operators (Inspect, Reset, Grant, Ban), for
// holders of concurrent permits (Renew) and for permits that another event returns (Return). Memory and redisstore.Store are AdminStores.
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

	// Return returns all permits that were noted under subject in limits, the windows of one
	// limit, as Refund does. However many calls there are at a time, each permit is returned
	// once. It reports of how many decisions permits were returned. A key may have another
	// rate than others: then limits has both, with the same name.
	Return(ctx context.Context, limits []*Limit, subject Key) (decisions int, err error)

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

// A KeyStatus is the status of a key under a limit, for operators.
type KeyStatus struct {
	// Rate is the rate in force: that of the limit or, for a limiter that is shared
	// with Redisson, that of its config in Redis.
	Rate Rate
	// Capacity is the number of permits of an unused key.
	Capacity int64
	// Used is the number of permits that are taken now; for Cooldown, the number of
	// permits granted since the steps started. It may exceed Capacity after a rate was
	// lowered, and under a Conversion limit.
	Used int64
	// Remaining is the number of permits that are available now, ignoring a ban.
	Remaining int64
	// Allowed is the number of permits that may be taken at a time now: Capacity, or for
	// Conversion more by the subjects that were confirmed within the window, of which
	// Confirmed is the number.
	Allowed, Confirmed int64
	// NextIn is the time until one more permit is available if none is taken; 0 if all
	// are available. For Concurrent it is the time until a lease expires, although most
	// permits are refunded earlier.
	NextIn time.Duration
	// FullIn is the time until all permits are available.
	FullIn time.Duration
	// BannedFor is the remaining time of a ban; 0 without a ban.
	BannedFor time.Duration
	// Overflow is true if the store had no capacity to count this key separately: the
	// numbers are those of all such keys together. Grant and Reset do not change them.
	Overflow bool
	// Unreadable is true if the store holds data for this key that is not valid for such
	// a limit. All numbers are 0. Reset deletes the data.
	Unreadable bool
}

// An Inspection is the status of keys at one time.
type Inspection struct {
	At       time.Time   // time of the inspection, by the store's clock
	Statuses []KeyStatus // one for each claim, in the order of the claims
	// Repeated reports that the store did not reply in time and was asked once more.
	Repeated bool
}
