package config

import (
	"iter"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// A Limit is a limit with one or more rates, applied to each value of its key.
type Limit struct {
	Name           string   // unique in its route and token-safe; of a common limit unique in the file, without a dot
	Route          string   // of which it is; "" if it is common: at the top of the file, for several routes
	Routes         []string // that name a common limit, and have one count by it
	ID             string   // under which stores count: FullName, or what was says
	Key            *key.Spec
	Distinct       *key.Spec       // the key whose values are counted; not nil exactly if Algorithm is Distinct
	Steps          []time.Duration // of Cooldown, ascending
	Reset          *Reset          // for Cooldown; nil: none
	Return         *Return         // nil: no response returns permits
	Conversion     int             // for Conversion: percentage
	StepUp         *StepUp         // nil: the limit refuses
	Scope          limiter.Scope
	Rates          []limiter.Rate // at least one, with different windows
	Algorithm      limiter.Algorithm
	Burst          int64                          // for GCRA; 0 means the rate's count
	Overrides      map[limiter.Key][]limiter.Rate // by key, as Privacy.Hash makes it
	Plans          map[string][]limiter.Rate      // by the name of the plan, empty for no limit; nil without plans
	Plan           *PlanSource                    // nil: no key has one
	RedissonName   string                         // of the limiter that Java programs share; {key} stands for the key's text; may be empty
	RedissonFormat limiter.RedissonFormat         // how they keep it
	Penalty        *Penalty                       // nil: none
	Cost           *Cost                          // nil: each request costs 1
	Prices         *Prices                        // of a budget, whose permits are the smallest parts of a unit; nil: none
	Count          *Statuses                      // statuses after which a request stays counted; nil means all outcomes
	Mode           Mode
	OnStoreFailure OnStoreFailure
	Expose         bool // whether it appears in responses
	// Wait is the maximum time for which a request may wait for a permit, 0 for none;
	// MaxWaiting is the maximum number of waiting requests per key, at least 1.
	Wait       time.Duration
	MaxWaiting int
	Position   Position

	RateFromDescriptor bool // the rate, of which there is one, is that of the descriptor if that has one
}

// A Reset selects the responses of a route that reset the cooldown of the same key.
type Reset struct {
	Route  string    // another route
	Key    *key.Spec // the key as a limit or list of that route reads it
	Status Statuses
}

// A Cost is the origin of the number of permits that a request takes.
type Cost struct {
	*key.Spec       // From is a header field or a query parameter; 1 if it is missing
	Max       int64 // at least 1
}

// A Read is a key that a route reads of its requests.
type Read struct {
	Key     *key.Spec
	Purpose Purpose
	Mode    Mode // of the limit that reads it; Enforce if it is not read by a limit
}

// A Purpose is what a key is read for.
type Purpose uint8

// The purposes of a Read.
const (
	ForKey      Purpose = iota // a limit counts by it
	ForDistinct                // a limit counts its values
	ForSubject                 // return_on returns permits by it
	ForPrice                   // it is the number that a budget pays for
	ForStepUp                  // a token of step_up is bound to it
	ForCost                    // it is how many permits a request takes
	ForPlan                    // it is the name of a plan
	ForList                    // its values are listed
	ForBalance                 // hash balancing selects the target by it
)

// Counts reports whether each value of such a key has a count of its own, or is counted.
func (p Purpose) Counts() bool { return p == ForKey || p == ForDistinct }

// Reads returns all keys that l reads. Whoever treats them alike, or some of them, asks this method.
func (l *Limit) Reads() iter.Seq[Read] {
	return func(yield func(Read) bool) {
		var cost, plan *key.Spec
		if l.Cost != nil {
			cost = l.Cost.Spec
		}
		if l.Plan != nil {
			plan = l.Plan.Name
		}
		for purpose, s := range [...]*key.Spec{
			ForKey: l.Key, ForDistinct: l.Distinct, ForSubject: l.Subject(), ForPrice: l.PriceKey(), ForStepUp: l.StepUpKey(), ForCost: cost, ForPlan: plan,
		} {
			if s != nil && !yield(Read{s, Purpose(purpose), l.Mode}) {
				return
			}
		}
	}
}

// Reads returns all keys that r reads: those of its limits, also of limits that are off, of its lists and of
// its upstream.
func (r *Route) Reads() iter.Seq[Read] {
	return func(yield func(Read) bool) {
		for _, l := range r.Limits {
			for read := range l.Reads() {
				if !yield(read) {
					return
				}
			}
		}
		for _, l := range r.Lists {
			if !yield(Read{l.Key, ForList, Enforce}) {
				return
			}
		}
		if r.Upstream != nil && r.Upstream.HashBy != nil {
			yield(Read{r.Upstream.HashBy, ForBalance, Enforce})
		}
	}
}
