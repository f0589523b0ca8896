package limiter

import "time"

// A Standing is the state of a claim's key under its limit, for operators.
type Standing struct {
	// Rate is the rate in force: that of the claim's limit or, for a limiter shared with
	// Redisson, that of its configuration in Redis.
	Rate Rate
	// Most is the number of permits of a key without any taken.
	Most int64
	// Used is the number of permits taken now; for a Cooldown, the number granted since the
	// sequence started. It may exceed Most after the rate was lowered.
	Used int64
	// Left is the number of permits available now, regardless of a ban.
	Left int64
	// Next is the time until one more permit is available, without other requests; 0 if all
	// are. For Concurrent it is the end of the first lease; most permits are released
	// earlier.
	Next time.Duration
	// Full is the time until all permits are available.
	Full time.Duration
	// Banned is the remaining time of a ban; 0 without one.
	Banned time.Duration
	// Overflow is true if the store had no capacity for a count of this key: the numbers
	// are those of all such keys together, and changes have no effect.
	Overflow bool
	// Unreadable is true if the store has data for this key in another format; Reset
	// removes it. All numbers are 0.
	Unreadable bool
}

// An Inspection is the state of several keys at one time.
type Inspection struct {
	At        time.Time // by the store's clock
	Standings []Standing
}
