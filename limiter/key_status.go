package limiter

import "time"

// A KeyStatus is how the key of one claim stands under its limit: what an operator
// asks before anything is changed.
type KeyStatus struct {
	// Rate is the one in force: that of the claim's limit or, of a limiter that
	// Redisson shares, that of its own config.
	Rate Rate
	// Capacity is how many permits the key has when nothing is taken.
	Capacity int64
	// Used is how many of them are out now, of a Cooldown how many permits were let
	// through since it began again. It may exceed Most after a rate was lowered.
	Used int64
	// Remaining is how many permits there are now, a ban left aside.
	Remaining int64
	// NextIn is how long until there is one permit more than are left, if nobody takes
	// any; 0 where all are left. Of Concurrent permits it is when a lease ends that
	// nobody renews: mostly they are given back earlier.
	NextIn time.Duration
	// FullIn is how long until the key is as new.
	FullIn time.Duration
	// BannedFor is how long the key has nothing whatever is left; 0 without a ban.
	BannedFor time.Duration
	// Overflow says that the store had no room for a count of this key, so that the
	// figures are those of all such keys together. Changes do not reach it.
	Overflow bool
	// Unreadable says that the store holds something for this key that no limit of
	// this kind writes; Reset heals it. All figures are 0.
	Unreadable bool
}

// An Inspection is how keys stand at one moment.
type Inspection struct {
	At       time.Time // by the store's clock
	Statuses []KeyStatus
}
