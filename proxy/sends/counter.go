// Package sends counts what becomes of the requests that a limit with return_on counts, such as codes that are sent:
// how many were passed on, and of how many the permits were returned, because the code was used. What is counted is in the store, as the
// counts of limits that refuse nothing: so it is that of all nodes, and ends with the window of the limit.
//
// What is open is the count of the limit itself. What was used is the difference: of the requests that took permits, those
// whose permits are neither open nor refunded.
package sends

import (
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// An Outcome is what became of a request. Each has a count for each key of the limit, and one for all keys together.
type Outcome uint8

// The outcomes.
const (
	Counted   Outcome = iota // the limit has taken permits
	Refunded                 // they were refunded, or an operator has given them back
	Refused                  // the limit, in shadow mode, would have refused it
	Withdrawn                // and it was refunded
	Returned                 // a response returned permits; of all keys only
	Wrong                    // a response would have returned permits of a refused one; of all keys only
	numOutcomes

	ofKey = Returned // the outcomes that have a count for each key
)

func (o Outcome) String() string {
	return [...]string{"counted", "refunded", "refused", "withdrawn", "returned", "wrong"}[o]
}

// A Counter counts the requests of one limit, over its longest window. A nil Counter counts nothing.
type Counter struct {
	outcomes [numOutcomes]limiter.Limit
	allKeys  limiter.Key    // of the counts of all keys together
	notes    *limiter.Limit // what was Refused and not used; nil if the limit is not in shadow mode
}

// Options are what a Counter has to know of its limit.
type Options struct {
	ID     string        // ROUTE.LIMIT
	Window time.Duration // the longest of the limit
	// Buckets reports that the limit counts by buckets of its window (limiter.Conversion). Then what it takes is
	// counted in the same buckets, so that both expire at the same time.
	Buckets bool
	Notes   *limiter.Limit // by which a limit in shadow mode notes what it would have refused; or nil
}

// NewCounter returns the Counter of a limit.
func NewCounter(o Options) *Counter {
	c := &Counter{allKeys: limiter.KeyOf("all keys"), notes: o.Notes}
	for outcome := range numOutcomes {
		name := o.ID + ":sends:" + outcome.String()
		c.outcomes[outcome] = Unlimited(name, o.Window)
		if outcome <= Refunded && !o.Buckets {
			c.outcomes[outcome] = limiter.Limit{Name: name, Rate: c.outcomes[outcome].Rate} // by the time of each
		}
		_ = c.outcomes[outcome].Prepare() // its rate is valid as that of the limit is
	}
	return c
}

// Unlimited returns a limit that refuses nothing, and counts by buckets of the window. Of what it notes under a subject each
// permit can be returned, however many a key has.
func Unlimited(name string, window time.Duration) limiter.Limit {
	return limiter.Limit{Name: name, Rate: limiter.Rate{Count: limiter.MaxCount, Window: window}, Algorithm: limiter.Conversion, Conversion: 100, Noted: true}
}

// Claims returns the claims that count n requests of a key.
func (c *Counter) Claims(o Outcome, k limiter.Key, n int64) []limiter.Claim {
	if c == nil {
		return nil
	}
	return append(c.AllClaims(o, n), limiter.Claim{Limit: &c.outcomes[o], Key: k, Cost: n})
}

// AllClaims returns the claims that count n requests of whatever keys.
func (c *Counter) AllClaims(o Outcome, n int64) []limiter.Claim {
	if c == nil || n == 0 {
		return nil
	}
	return []limiter.Claim{{Limit: &c.outcomes[o], Key: c.allKeys, Cost: n}}
}

// OfKey returns a claim on each count of a key.
func (c *Counter) OfKey(k limiter.Key) (claims []limiter.Claim) {
	for o := range ofKey {
		claims = append(claims, limiter.Claim{Limit: &c.outcomes[o], Key: k, Cost: 1})
	}
	if c.notes != nil {
		claims = append(claims, limiter.Claim{Limit: c.notes, Key: k, Cost: 1})
	}
	return claims
}

// OfAll returns a claim on each count of all keys together.
func (c *Counter) OfAll() (claims []limiter.Claim) {
	for o := range numOutcomes {
		claims = append(claims, c.AllClaims(o, 1)...)
	}
	return claims
}
