package limiter

import "context"

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
	// shadow changes nothing for the others. No two of all these claims may be the same limit on
	// the same key.
	TakeWithShadows(ctx context.Context, claims []Claim, d *Decision, shadows []Shadow) error
}

// TakeWithShadows takes claims from s as Take does and, if they are allowed, each of shadows: see
// ShadowTaker, which s need not be. For other stores they are calls of their own.
func TakeWithShadows(ctx context.Context, s Store, claims []Claim, d *Decision, shadows []Shadow) error {
	if t, ok := s.(ShadowTaker); ok {
		return t.TakeWithShadows(ctx, claims, d, shadows)
	}
	if err := s.Take(ctx, claims, d); err != nil || !d.Allowed {
		return err
	}
	for i := range shadows {
		shadows[i].Err = s.Take(ctx, shadows[i].Claims, &shadows[i].Decision)
	}
	return nil
}
