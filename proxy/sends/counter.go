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

// LimitCounts tell what became of the requests that a limit with return_on counts, over its longest window.
type LimitCounts struct {
	Route      string      `json:"route"` // empty for a limit of several routes
	Limit      string      `json:"limit"`
	Key        string      `json:"key"` // the name of the key
	Mode       string      `json:"mode"`
	ReturnOn   string      `json:"return_on"`            // the route whose responses return permits
	Subject    string      `json:"subject"`              // the name of the key under which they do
	Conversion int         `json:"conversion,omitempty"` // in percent; 0 without
	StepUp     bool        `json:"step_up,omitempty"`    // requests that passed by step_up are not counted here
	Window     string      `json:"window"`               // 1d
	All        Counts      `json:"all"`                  // of all keys, also those that are not listed
	Keys       []KeyCounts `json:"keys"`                 // those with most sends; as far as running nodes have seen them
	Floor      int64       `json:"floor"`                // the most sends of a key that is not listed
	Note       string      `json:"note,omitempty"`
}

// A Query selects limits. Empty fields match all.
type Query struct {
	Route string `json:"route,omitempty"`
	Limit string `json:"limit,omitempty"`
	N     int    `json:"n,omitempty"` // keys of each limit; 20 if 0
	// PassedOn masks all texts that clients choose, as the result leaves the cluster.
	PassedOn bool `json:"passed_on,omitempty"`
}

// KeyCounts tell of the requests of one key.
type KeyCounts struct {
	Masked string `json:"masked"`
	Hash   string `json:"hash"` // the hash of the key in the log
	ID     string `json:"id"`   // the key id, see view.KeyPair
	Counts
	Rates   []RateCounts `json:"rates"`
	Rated   int64        `json:"-"`                 // the count of the rate of the longest window
	Unknown string       `json:"unknown,omitempty"` // why there are no numbers
	// Country is that of a range of phone numbers, and OfCountry the part that the range has of it.
	Country   string        `json:"country,omitempty"`
	OfCountry *CountryShare `json:"of_country,omitempty"`
}

// A CountryShare tells how many of the subjects that were verified in a country are in one range of its numbers. The more there
// are, the more may be sent to all of the country: whoever owns the numbers of a range can verify them for that.
type CountryShare struct {
	Limit    string `json:"limit"`     // the limit on the country
	Window   string `json:"window"`    // the longest that both limits have
	Verified int64  `json:"verified"`  // in the range
	Of       int64  `json:"of"`        // in the country
	OverHalf bool   `json:"over_half"` // and more than one: those of a country that uses few codes are all in some range
}

// ShareOf compares the rates of a range with those that a limit has for its country. It returns nil if no two have the same
// window, or nothing was verified.
func ShareOf(limit string, ofRange, ofCountry []RateCounts) (share *CountryShare) {
	longest := time.Duration(0)
	for _, r := range ofRange {
		for _, c := range ofCountry {
			window, err := limiter.ParseDuration(r.Window)
			if err == nil && r.Window == c.Window && window > longest && c.Verified > 0 {
				longest = window
				share = &CountryShare{Limit: limit, Window: r.Window, Verified: r.Verified, Of: c.Verified, OverHalf: r.Verified > 1 && 2*r.Verified > c.Verified}
			}
		}
	}
	return share
}

// Counts are numbers of requests within the window of a limit.
type Counts struct {
	Sent     int64   `json:"sent"`     // passed on and not refunded; also those that shadow mode would have refused
	Used     int64   `json:"used"`     // of these, the ones whose permits a response has returned, or would have
	Ratio    float64 `json:"ratio"`    // Used of Sent, from 0 to 1
	Refunded int64   `json:"refunded"` // passed on, and not in Sent: refunded, or given back by an operator
	// WouldRefuse of those sent would have been refused by a limit in shadow mode, and Wrong of these were used later.
	WouldRefuse int64 `json:"would_refuse"`
	Wrong       int64 `json:"wrong"`
}

// RateCounts tell of a key under one rate of a limit, as the store decides by it.
type RateCounts struct {
	Rate     string `json:"rate"`               // 10/1h
	Window   string `json:"window"`             // 1h
	Open     int64  `json:"open"`               // permits that are taken, and neither refunded nor returned
	Allowed  int64  `json:"allowed"`            // permits that may be open
	Verified int64  `json:"verified,omitempty"` // with conversion: the subjects of which a response returned permits
}

// Open returns how many of the requests are neither used nor would have been refused.
func (c Counts) Open() int64 { return c.Sent - c.Used - (c.WouldRefuse - c.Wrong) }

// Without returns the requests of c that are not among others. What was counted in between does not make it negative.
func (c Counts) Without(others Counts) Counts {
	open, used := max(c.Open()-others.Open(), 0), max(c.Used-others.Used, 0)
	left := Counts{
		Used: used, Refunded: max(c.Refunded-others.Refunded, 0), WouldRefuse: max(c.WouldRefuse-others.WouldRefuse, 0), Wrong: max(c.Wrong-others.Wrong, 0),
	}
	left.Wrong = min(left.Wrong, left.WouldRefuse, left.Used)
	left.Sent = open + left.Used + left.WouldRefuse - left.Wrong
	return left.withRatio()
}

// withRatio returns c with its Ratio, 0 if nothing was sent.
func (c Counts) withRatio() Counts {
	if c.Sent > 0 {
		c.Ratio = float64(c.Used) / float64(c.Sent)
	}
	return c
}

// ReadKey returns the numbers of a key. open is what the limit has open in its longest window, and statuses are those of
// Counter.OfKey. What the limit counts and this does not, such as requests while the store was unreachable, is
// taken as sent, so that nothing is taken as used that is not.
func (c *Counter) ReadKey(open int64, statuses []limiter.KeyStatus) Counts {
	n := usedOf(statuses)
	counted := max(n[Counted]-n[Refunded], open)
	var refused, wrong int64
	if c.notes != nil { // else it may have been in shadow mode before, and its notes are not read any more
		unused := statuses[ofKey].Used
		refused = max(n[Refused]-n[Withdrawn], unused)
		wrong = refused - unused
	}
	return Counts{Sent: counted + refused, Used: counted - open + wrong, Refunded: n[Refunded] + n[Withdrawn], WouldRefuse: refused, Wrong: wrong}.withRatio()
}

// ReadAll returns the numbers of all keys together, with the statuses of Counter.OfAll.
func (c *Counter) ReadAll(statuses []limiter.KeyStatus) Counts {
	n := usedOf(statuses)
	if c.notes == nil {
		n[Refused], n[Withdrawn], n[Wrong] = 0, 0, 0
	}
	refused := n[Refused] - n[Withdrawn]
	return Counts{
		Sent: n[Counted] - n[Refunded] + refused, Used: n[Returned] + n[Wrong], Refunded: n[Refunded] + n[Withdrawn],
		WouldRefuse: refused, Wrong: n[Wrong],
	}.withRatio()
}

func usedOf(statuses []limiter.KeyStatus) (n [numOutcomes]int64) {
	for i := range min(len(statuses), len(n)) {
		n[i] = statuses[i].Used
	}
	return n
}
