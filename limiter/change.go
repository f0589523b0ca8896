package limiter

import (
	"context"
	"fmt"
	"time"
)

// A Verb is an operation of an operator on a key.
type Verb string

// The verbs. A ban with length 0 ends a ban.
const (
	VerbReset Verb = "reset" // AdminStore.Reset
	VerbGrant Verb = "grant" // AdminStore.Grant
	VerbBan   Verb = "ban"   // AdminStore.Ban
)

// A Change is an operation of an operator on one key under some limits. It is sent to all
// processes that share a store, because each has state that the store does not have: for
// decisions while the store is unreachable, and for limits with scope PerClient.
type Change struct {
	Verb   Verb          `json:"verb"`
	Key    Key           `json:"-"`
	Limits []string      `json:"limits"`           // by Limit.Name
	Grant  int64         `json:"grant,omitempty"`  // for VerbGrant: permits, 1 or more
	Ban    time.Duration `json:"ban_ns,omitempty"` // for VerbBan: its length from now on; 0 ends a ban
}

// Apply applies c to the keys of claims in s. A key is granted no more than its limit
// allows.
func (c Change) Apply(ctx context.Context, s AdminStore, claims []Claim) error {
	switch c.Verb {
	case VerbReset:
		return s.Reset(ctx, claims)
	case VerbBan:
		return s.Ban(ctx, claims, c.Ban)
	case VerbGrant:
		return c.grant(ctx, s, claims)
	}
	return fmt.Errorf("%w: the unknown change %q", ErrLimit, c.Verb)
}

// grant grants c.Grant permits, as far as possible. A claim of a Distinct limit is for one
// value, so several are granted one by one.
func (c Change) grant(ctx context.Context, s AdminStore, claims []Claim) error {
	for given := int64(0); given < c.Grant; given++ {
		var now []Claim
		for _, claim := range claims {
			most := claim.Limit.Most()
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
