package redisstore

import (
	"context"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// tell has Redis count what is to be told of the windows of claims, or of all
// windows if there are none. One caller at a time does so; the others find that
// it is done.
func (s *Store) tell(ctx context.Context, claims []limiter.Claim) error {
	select {
	case s.reports.turn <- struct{}{}:
		defer func() { <-s.reports.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		told := s.reports.take(claims, !s.apart)
		if len(told) == 0 {
			return nil
		}
		if err := s.report(ctx, told); err != nil {
			s.reports.kept(told)
			return err
		}
		s.reports.done(told)
	}
}

// report sends one call.
func (s *Store) report(ctx context.Context, told []*report) error {
	now := time.Now()
	claims, packed := make([]limiter.Claim, len(told)), make([]any, len(told))
	s.reports.mu.Lock()
	for i, r := range told {
		claims[i], packed[i] = r.claim, r.pack(now)
	}
	s.reports.mu.Unlock()
	_, err := s.change(ctx, s.scripts.report, claims, packed...)
	return err
}
