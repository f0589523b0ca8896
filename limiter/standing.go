package limiter

import "time"

// A Standing is how the key of one claim stands under its limit: what an operator
// asks before anything is changed.
type Standing struct {
	// Rate is the one in force: that of the claim's limit or, of a limiter that
	// Redisson shares, that of its own config.
	Rate Rate
	// Most is how many permits the key has when nothing is taken.
	Most int64
	// Used is how many of them are out now, of a Cooldown how many permits were let
	// through since it began again. It may exceed Most after a rate was lowered.
	Used int64
	// Left is how many permits there are now, a ban left aside.
	Left int64
	// Next is how long until there is one permit more than are left, if nobody takes
	// any; 0 where all are left. Of Concurrent permits it is when a lease ends that
	// nobody renews: mostly they are given back earlier.
	Next time.Duration
	// Full is how long until the key is as new.
	Full time.Duration
	// Banned is how long the key has nothing whatever is left; 0 without a ban.
	Banned time.Duration
	// Overflow says that the store had no room for a count of this key, so that the
	// figures are those of all such keys together. Changes do not reach it.
	Overflow bool
	// Unreadable says that the store holds something for this key that no limit of
	// this kind writes; Reset heals it. All figures are 0.
	Unreadable bool
}

// An Inspection is how keys stand at one moment.
type Inspection struct {
	At        time.Time // by the store's clock
	Standings []Standing
}
