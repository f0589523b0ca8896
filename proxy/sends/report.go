package sends

import (
	"time"

	"github.com/weir-proxy/weir/limiter"
)

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
	ID     string `json:"id"`   // the key id, see proxy.KeyPair.Value
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
	refused, unused := n[Refused]-n[Withdrawn], int64(0)
	if c.notes != nil {
		unused = statuses[ofKey].Used
	}
	refused = max(refused, unused)
	wrong := refused - unused
	if c.notes == nil { // it was in shadow mode before, and its notes are not read any more
		refused, wrong = 0, 0
	}
	out := Counts{Sent: counted + refused, Used: counted - open + wrong, Refunded: n[Refunded] + n[Withdrawn], WouldRefuse: refused, Wrong: wrong}
	return out.withRatio()
}

// ReadAll returns the numbers of all keys together, with the statuses of Counter.OfAll.
func (c *Counter) ReadAll(statuses []limiter.KeyStatus) Counts {
	n := usedOf(statuses)
	if c.notes == nil {
		n[Refused], n[Withdrawn], n[Wrong] = 0, 0, 0
	}
	refused := n[Refused] - n[Withdrawn]
	out := Counts{
		Sent: n[Counted] - n[Refunded] + refused, Used: n[Returned] + n[Wrong], Refunded: n[Refunded] + n[Withdrawn],
		WouldRefuse: refused, Wrong: n[Wrong],
	}
	return out.withRatio()
}

func usedOf(statuses []limiter.KeyStatus) (n [numOutcomes]int64) {
	for i := range min(len(statuses), len(n)) {
		n[i] = statuses[i].Used
	}
	return n
}
