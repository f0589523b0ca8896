package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// reserve decides a request whose keys are on several nodes of a cluster. It takes part
// after part, and if one refuses, it refunds the permits of the parts before. In between,
// other requests may be refused permits that become available a moment later, but no
// limit is exceeded. If this process dies in between, the permits expire.
func (s *Store) reserve(ctx context.Context, claims []limiter.Claim, id [16]byte, d *limiter.Decision) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	parts := s.parts(claims)
	for i, p := range parts {
		if err := s.takePart(ctx, s.newCall(p.claims, id), &p.Decision); err != nil {
			s.cancel(id, parts[:i+1]) // the outcome of the last one is unknown
			return err
		}
		if !p.Allowed {
			s.cancelAndPeek(ctx, id, parts, i)
			break
		}
	}
	mergeParts(claims, parts, d)
	if d.Allowed {
		d.Permit = limiter.Permit{ID: id, At: d.At}
	}
	return nil
}

// cancelAndPeek refunds the parts before the one that refused, and peeks at those after
// it. Their outcomes are unknown if that fails; the refusal stands.
func (s *Store) cancelAndPeek(ctx context.Context, id [16]byte, parts []*part, refused int) {
	var wg sync.WaitGroup
	wg.Go(func() { s.cancel(id, parts[:refused]) })
	for _, p := range parts[refused+1:] {
		wg.Go(func() {
			if s.decide(ctx, "peek", p.claims, id, &p.Decision) != nil {
				p.Decision = unknownDecision(p.claims)
			}
		})
	}
	wg.Wait()
	for _, p := range parts[:refused] {
		for i := range p.Outcomes {
			o := &p.Outcomes[i]
			o.Remaining = min(o.Remaining+p.claims[i].Cost, p.claims[i].Limit.Capacity())
			o.Wait = 0
		}
	}
}

// unknownDecision returns a decision with unknown outcomes for limits that could not be
// evaluated.
func unknownDecision(claims []limiter.Claim) limiter.Decision {
	d := limiter.Decision{Allowed: true}
	for _, c := range claims {
		d.Outcomes = append(d.Outcomes, limiter.Outcome{Allowed: true, Remaining: c.Limit.Capacity(), Unknown: true})
	}
	return d
}

// cancel refunds parts. If that fails, the permits expire.
func (s *Store) cancel(id [16]byte, parts []*part) {
	waits := make([]func() error, len(parts))
	for i, p := range parts {
		at := p.At
		if at.IsZero() {
			at = time.UnixMilli(1) // unknown: only what is found by its ID is refunded
		}
		refunded := s.startRefund(p.claims, limiter.Permit{ID: id, At: at}) // not by a note, which is not written yet
		waits[i] = func() error {
			_, err := refunded()
			return err
		}
	}
	for _, wait := range waits {
		_ = wait()
	}
}

// mergeParts merges the decisions of parts. Nodes have different clocks, so its time is
// the earliest of theirs.
func mergeParts(claims []limiter.Claim, parts []*part, d *limiter.Decision) {
	*d = limiter.Decision{Allowed: true, Outcomes: append(d.Outcomes[:0], make([]limiter.Outcome, len(claims))...)}
	for _, p := range parts {
		if !p.At.IsZero() && (d.At.IsZero() || p.At.Before(d.At)) {
			d.At = p.At
		}
		d.Allowed = d.Allowed && p.Allowed
		d.Wait = max(d.Wait, p.Wait)
		for i, place := range p.indices {
			d.Outcomes[place] = p.Outcomes[i]
		}
	}
}

// forEachPart calls do for all parts concurrently and joins the errors.
func (s *Store) forEachPart(claims []limiter.Claim, do func(p *part) error) error {
	parts := s.parts(claims)
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		wg.Go(func() { errs[i] = do(p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
