package limiter

import (
	"context"
	"fmt"
	"time"
)

// An Action is an operation of an operator on a key.
type Action string

// The actions. A ban with a duration of 0 ends a ban.
const (
	ActionReset Action = "reset" // AdminStore.Reset
	ActionGrant Action = "grant" // AdminStore.Grant
	ActionBan   Action = "ban"   // AdminStore.Ban
)

// A Change describes an action of an operator on one key under some limits. Processes
// that share a store send it to each other, because each has local state of the key that
// the action must change too: the counts it decides by while the store is unreachable,
// and those that are not shared.
type Change struct {
	Action Action        `json:"verb"`
	Key    Key           `json:"-"`
	Limits []string      `json:"limits"`           // names of limits
	Grant  int64         `json:"grant,omitempty"`  // for ActionGrant: permits, 1 or more
	Ban    time.Duration `json:"ban_ns,omitempty"` // for ActionBan: duration from now; 0 ends a ban
	// Automatic reports that refusals led to the ban, not an operator. There may be very
	// many such bans, so they are kept in bounded memory.
	Automatic bool `json:"automatic,omitempty"`
}

// Apply applies the change to the keys of claims in s. ActionGrant grants at most the
// capacity of each limit.
func (c Change) Apply(ctx context.Context, s AdminStore, claims []Claim) error {
	switch c.Action {
	case ActionReset:
		return s.Reset(ctx, claims)
	case ActionBan:
		return s.Ban(ctx, claims, c.Ban)
	case ActionGrant:
		return c.grant(ctx, s, claims)
	}
	return fmt.Errorf("%w: the unknown action %q", ErrInvalidLimit, c.Action)
}

// grant grants up to c.Grant permits. Grants of a Distinct limit are for one value each,
// so they are repeated.
func (c Change) grant(ctx context.Context, s AdminStore, claims []Claim) error {
	for given := int64(0); given < c.Grant; given++ {
		var pending []Claim
		for _, claim := range claims {
			capacity := claim.Limit.Capacity()
			if claim.Limit.Algorithm.HasValues() {
				if given >= capacity {
					continue
				}
				claim.Cost = 1
			} else if claim.Cost = min(c.Grant, capacity); given > 0 {
				continue
			}
			pending = append(pending, claim)
		}
		if len(pending) == 0 {
			return nil
		}
		if err := s.Grant(ctx, pending); err != nil {
			return err
		}
	}
	return nil
}
