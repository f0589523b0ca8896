package limiter

import (
	"context"
	"fmt"
	"time"
)

// An Action is what an operator does to a key.
type Action string

// The verbs. A ban of no length ends one.
const (
	ActionReset Action = "reset" // AdminStore.Reset
	ActionGrant Action = "grant" // AdminStore.Grant
	ActionBan   Action = "ban"   // AdminStore.Ban
)

// A Change is what an operator did to one key under some limits. It travels between
// the processes that share a store, because each of them keeps something of a key
// that the store does not: what it may have to decide by while the store is
// unreachable, and what it counts by itself.
type Change struct {
	Action Action        `json:"verb"`
	Key    Key           `json:"-"`
	Limits []string      `json:"limits"`           // by Limit.Name
	Grant  int64         `json:"grant,omitempty"`  // of ActionGrant: permits, 1 or more
	Ban    time.Duration `json:"ban_ns,omitempty"` // of ActionBan: for how long from now on; 0 ends a ban
}

// Apply does the same in s to claims. A claim's key is granted no more than its limit
// has.
func (c Change) Apply(ctx context.Context, s AdminStore, claims []Claim) error {
	switch c.Action {
	case ActionReset:
		return s.Reset(ctx, claims)
	case ActionBan:
		return s.Ban(ctx, claims, c.Ban)
	case ActionGrant:
		return c.grant(ctx, s, claims)
	}
	return fmt.Errorf("%w: the unknown change %q", ErrInvalidLimit, c.Action)
}

// grant gives what is possible of c.Grant. A claim on a Distinct limit is for one
// value, so that several are granted one after another.
func (c Change) grant(ctx context.Context, s AdminStore, claims []Claim) error {
	for given := int64(0); given < c.Grant; given++ {
		var now []Claim
		for _, claim := range claims {
			most := claim.Limit.Capacity()
			if claim.Limit.Algorithm == Distinct {
				if given >= most {
					continue
				}
				claim.Cost = 1
			} else if claim.Cost = min(c.Grant, most); given > 0 {
				continue
			}
			now = append(now, claim)
		}
		if len(now) == 0 {
			return nil
		}
		if err := s.Grant(ctx, now); err != nil {
			return err
		}
	}
	return nil
}
