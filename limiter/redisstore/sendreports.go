package redisstore

import (
	"context"
	"errors"
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
		told := s.reports.take(claims, s.home)
		if len(told) == 0 {
			return nil
		}
		switch err := s.report(ctx, told); {
		case errors.Is(err, ErrShared): // it never will be, and must not hold up the others
			s.reports.done(told, &s.reports.lost)
		case err != nil:
			s.reports.kept(told)
			return err
		default:
			s.reports.done(told, &s.reports.heard)
		}
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
	var err error
	if c := claims[0]; c.RedissonName != "" {
		_, err = s.changeShared(ctx, s.shared(c.RedissonFormat).report, c, packed...)
	} else {
		_, err = s.change(ctx, s.scripts.report, claims, packed...)
	}
	return err
}
