package config

import (
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
	Memory         time.Duration   // for Conversion: whole days; 0: none
	Trust          time.Duration   // for which a subject of Return is not counted after a return; 0: not
	StepUp         *StepUp         // nil: the limit refuses
	Scope          limiter.Scope
	Rates          []limiter.Rate // at least one, with different windows
	Algorithm      limiter.Algorithm
	Burst          int64                          // for GCRA; 0 means the rate's count
	Overrides      map[limiter.Key][]limiter.Rate // by key, as Privacy.Hash makes it
	Hashed         *HashedOverrides               // whose keys are hashed as values of lists are; nil: none
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

// HashedOverrides are overrides whose keys are known only by their hash.
type HashedOverrides struct {
	Keys  *key.List
	Rates map[string][]limiter.Rate // by key.List.Hash
}

// A Reset selects the responses of a route that reset the cooldown of the same key.
type Reset struct {
	Route  string    // another route
	Key    *key.Spec // the key as a limit or list of that route reads it
	Status Statuses
}

// A Cost is the origin of the number of permits that a request takes.
type Cost struct {
	From key.Origin // a header field or a query parameter; 1 if it is missing
	Max  int64      // at least 1
}
