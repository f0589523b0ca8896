package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// reserve decides a request whose keys lie on several nodes of a cluster: it
// reserves part by part, and when one refuses it gives back, by id, what the
// parts before had granted. Between the two, others may be refused what comes
// free a moment later; nobody is granted too much. If this process dies in
// between, what was reserved comes back by itself.
func (s *Store) reserve(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	id, parts := newID(), s.parts(claims)
	for i, p := range parts {
		if err := s.takePart(ctx, p.claims, id, &p.Decision); err != nil {
			s.cancel(ctx, id, parts[:i+1]) // of the last it is unknown
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

// cancelAndPeek gives back the parts before the one that refused, and asks those after
// it what they would say. Their answers are only told: without one, the refusal
// stands.
func (s *Store) cancelAndPeek(ctx context.Context, id [16]byte, parts []*part, refused int) {
	var wg sync.WaitGroup
	wg.Go(func() { s.cancel(ctx, id, parts[:refused]) })
	for _, p := range parts[refused+1:] {
		wg.Go(func() {
			if s.decide(ctx, s.scripts.peek, p.claims, id, &p.Decision) != nil {
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

// unknownDecision is what stands for the answer of limits that could not be asked.
func unknownDecision(claims []limiter.Claim) limiter.Decision {
	d := limiter.Decision{Allowed: true}
	for _, c := range claims {
		d.Outcomes = append(d.Outcomes, limiter.Outcome{Allowed: true, Remaining: c.Limit.Capacity(), Unknown: true})
	}
	return d
}

// cancel gives back what parts reserved, even when the caller has left. What
// cannot be given back comes back by itself.
func (s *Store) cancel(ctx context.Context, id [16]byte, parts []*part) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range parts {
		at := p.At
		if at.IsZero() {
			at = time.UnixMilli(1) // unknown: give back only what is found by its id
		}
		wg.Go(func() { _ = s.refund(ctx, p.claims, limiter.Permit{ID: id, At: at}) })
	}
	wg.Wait()
}

// mergeParts makes one decision of the parts'. It was made at the earliest of
// their times: nodes have clocks of their own.
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

// forEachPart does something with every part at once and joins the errors.
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
