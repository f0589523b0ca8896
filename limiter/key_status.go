package limiter

import "time"

// A KeyStatus is the status of a key under a limit, for operators.
type KeyStatus struct {
	// Rate is the rate in force: that of the limit or, for a limiter that is shared
	// with Redisson, that of its config in Redis.
	Rate Rate
	// Capacity is the number of permits of an unused key.
	Capacity int64
	// Used is the number of permits that are taken now; for Cooldown, the number of
	// permits granted since the steps started. It may exceed Capacity after a rate was
	// lowered.
	Used int64
	// Remaining is the number of permits that are available now, ignoring a ban.
	Remaining int64
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
}
