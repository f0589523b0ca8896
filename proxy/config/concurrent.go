package config

import (
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// Lease is the lease of a concurrent permit. It is renewed while the request is in
// progress.
const Lease = 30 * time.Second

// A Penalty bans the key of a limit that has refused it too often.
type Penalty struct {
	Ban   time.Duration // how long
	After int64         // refusals within the longest window of the limit, at least 1
}

// concurrent compiles the rate of a limit on concurrent requests.
func (l *limits) concurrent(f *limitForm, limit *Limit) {
	l.without(f, "concurrent", "rate", "rates", "distinct", "cooldown", "overrides", "plans", "plan", "burst", "count", "penalty")
	limit.Algorithm = limiter.Concurrent
	if f.Concurrent > 0 {
		limit.Rates = []limiter.Rate{{Count: int64(f.Concurrent), Window: Lease}}
	}
}

// penalty compiles the penalty of a limit.
func (l *limits) penalty(f *limitForm) *Penalty {
	if f.Penalty == nil {
		return nil
	}
	ban := time.Duration(f.Penalty.Ban)
	if err := limiter.CheckBan(ban); err != nil {
		l.Wrong(&f.Penalty.Ban, "is longer than a ban may be", "write at most 366d")
	}
	return &Penalty{Ban: ban, After: int64(f.Penalty.After)}
}
