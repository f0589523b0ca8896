package limiter

import (
	"context"
	"fmt"
)

// A Shadow is a set of claims that a request takes beside its own, if it is allowed: all of
// them or none. They refuse nothing.
type Shadow struct {
	Claims   []Claim
	Decision Decision // valid if the request is allowed and Err is nil
	Err      error
}

// A ShadowTaker is a Store that decides shadows in the call in which it decides their
// request.
type ShadowTaker interface {
	// TakeWithShadows is Take of claims, which may be none, and decides each of shadows for
	// itself if they are allowed. It sets the Decision and the Err of each then; an error of a
	// shadow changes nothing for the others, such as that of CheckShadows. No two of all these
	// claims may be the same limit on the same key.
	TakeWithShadows(ctx context.Context, claims []Claim, d *Decision, shadows []Shadow) error
}

// TakeWithShadows takes claims from s as Take does and, if they are allowed, each of shadows: see
// ShadowTaker, which s need not be. For other stores they are calls of their own.
func TakeWithShadows(ctx context.Context, s Store, claims []Claim, d *Decision, shadows []Shadow) error {
	if t, ok := s.(ShadowTaker); ok {
		return t.TakeWithShadows(ctx, claims, d, shadows)
	}
	CheckShadows(claims, shadows)
	if err := s.Take(ctx, claims, d); err != nil || !d.Allowed {
		return err
	}
	for i := range shadows {
		if h := &shadows[i]; h.Err == nil {
			h.Err = s.Take(ctx, h.Claims, &h.Decision)
		}
	}
	return nil
}

// CheckShadows sets the Err of each shadow: that of CheckClaims, or one that wraps ErrInvalidLimit if a call with it would
// have more than MaxClaims claims, those of the request and of the shadows before it included.
func CheckShadows(claims []Claim, shadows []Shadow) {
	total := len(claims)
	for i := range shadows {
		h := &shadows[i]
		if h.Err = CheckClaims(h.Claims); h.Err != nil {
			continue
		}
		if n := total + len(h.Claims); n > MaxClaims {
			h.Err = fmt.Errorf("%w: %d claims of a request and its shadows; the maximum is %d", ErrInvalidLimit, n, MaxClaims)
			continue
		}
		total += len(h.Claims)
	}
}
