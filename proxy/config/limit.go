package config

import (
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// A Limit is one promise to each key, made of one or more rates.
type Limit struct {
	Name           string // unique in its route and token-safe
	Key            *key.Spec
	Distinct       *key.Spec       // whose values are counted; not nil exactly when Algorithm is Distinct
	Steps          []time.Duration // of Cooldown, ascending
	Reset          *Reset          // of Cooldown; nil: nothing does
	Scope          limiter.Scope
	Rates          []limiter.Rate // at least one; no two of one window
	Algorithm      limiter.Algorithm
	Burst          int64                          // of GCRA; 0 is the rate's count
	Overrides      map[limiter.Key][]limiter.Rate // by key, as Privacy.Hash makes it
	Hashed         *HashedOverrides               // whose keys are hashed as values of lists are; nil: none
	RedissonName   string                         // of the limiter that Java programs share; {key} stands for the key's text; may be empty
	RedissonFormat limiter.RedissonFormat         // how they keep it
	Penalty        *Penalty                       // nil: none
	Cost           *Cost                          // nil: each request costs 1
	Count          *Statuses                      // after which a request stays counted; nil means after all
	Mode           Mode
	OnStoreFailure OnStoreFailure
	Expose         bool // whether clients may learn of it
	// Wait is how long a request may wait for a permit, 0 for not at all, and
	// MaxWaiting how many of one key may at a time, at least 1.
	Wait       time.Duration
	MaxWaiting int
	Position   Position
}

// HashedOverrides are rates of single keys that are not told.
type HashedOverrides struct {
	Keys  *key.List
	Rates map[string][]limiter.Rate // by key.List.Hash
}

// A Reset says which answers of a route let the cooldown of the same key begin
// again.
type Reset struct {
	Route  string    // another one
	Key    *key.Spec // as that route reads it; one of its limits or lists does
	Status Statuses
}

// A Cost says where a request tells how many permits it asks for.
type Cost struct {
	From key.Origin // a header field or a query parameter; without it the cost is 1
	Max  int64      // at least 1
}
