package config

import (
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// Lease is how long a concurrent permit is held for a request that nobody hears
// of any more. While the request is in progress it is renewed well before.
const Lease = 30 * time.Second

// A Penalty bans the key of a limit that has refused it too often.
type Penalty struct {
	Ban   time.Duration // how long
	After int64         // refusals within the longest window of the limit, at least 1
}

// concurrent makes the only rate of a limit on what is in progress at a time.
func (l *limits) concurrent(f *limitForm, limit *Limit) {
	l.without(f, "concurrent", "rate", "rates", "distinct", "cooldown", "overrides", "burst", "count", "penalty")
	limit.Algorithm = limiter.Concurrent
	if f.Concurrent > 0 {
		limit.Rates = []limiter.Rate{{Count: int64(f.Concurrent), Window: Lease}}
	}
}

// penalty reads what a key has to fear.
func (l *limits) penalty(f *limitForm) *Penalty {
	if f.Penalty == nil {
		return nil
	}
	ban := time.Duration(f.Penalty.Ban)
	if err := limiter.CheckBan(ban); err != nil {
		l.wrong(&f.Penalty.Ban, "is longer than a ban may be", "write at most 366d")
	}
	return &Penalty{Ban: ban, After: int64(f.Penalty.After)}
}
