package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// Inspect implements limiter.AdminStore: one script call for each slot.
func (s *Store) Inspect(ctx context.Context, claims []limiter.Claim) (limiter.Inspection, error) {
	in := limiter.Inspection{Standings: make([]limiter.Standing, len(claims))}
	if err := limiter.CheckAll(claims); err != nil || len(claims) == 0 {
		return in, err
	}
	var mu sync.Mutex // guards in
	err := s.each(claims, func(p *part) error {
		at, standings, err := s.inspect(ctx, p.claims)
		if err != nil {
			return fmt.Errorf("inspect %d claims: %w", len(p.claims), err)
		}
		mu.Lock()
		defer mu.Unlock()
		if in.At.IsZero() || at.Before(in.At) { // nodes have clocks of their own
			in.At = at
		}
		for i, place := range p.places {
			in.Standings[place] = standings[i]
		}
		return nil
	})
	return in, err
}

// inspect asks about the claims of one part.
func (s *Store) inspect(ctx context.Context, claims []limiter.Claim) (time.Time, []limiter.Standing, error) {
	if claims[0].Redisson != "" {
		return s.inspectShared(ctx, claims[0])
	}
	b := newPayload(s.names, claims)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	reply, err := s.scripts.inspect.run(ctx, s.client, b.keyNames(), b.args())
	if err != nil {
		s.remap()
		return time.Time{}, nil, fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
	}
	at, list, err := timedNumbers(reply)
	if err != nil || len(list) != 6*len(claims) {
		return time.Time{}, nil, fmt.Errorf("%w: %w", limiter.ErrUnavailable, errReply)
	}
	standings := make([]limiter.Standing, len(claims))
	for i, c := range claims {
		standings[i] = readStanding(list[6*i:6*i+6], c)
	}
	return at, standings, nil
}

// readStanding reads what inspect.lua says of one window.
func readStanding(n []int64, c limiter.Claim) limiter.Standing {
	return limiter.Standing{
		Rate: c.Limit.Rate, Most: c.Limit.Most(), Left: n[1], Used: n[2],
		Next: milliseconds(n[3]), Full: milliseconds(n[4]), Banned: milliseconds(n[5]), Unreadable: n[0] == 0,
	}
}

// timedNumbers are the numbers of a reply that begins with the time.
func timedNumbers(reply any) (time.Time, []int64, error) {
	list, err := numbersOf(reply)
	if err != nil {
		return time.Time{}, nil, err
	}
	return readTime(list)
}

// inspectShared asks about a limiter that Redisson shares. One that cannot be used is
// unreadable, and no error.
func (s *Store) inspectShared(ctx context.Context, c limiter.Claim) (time.Time, []limiter.Standing, error) {
	reply, err := s.askShared(ctx, s.shared(c.RedissonForm).inspect, c)
	if errors.Is(err, ErrShared) {
		return time.Now(), []limiter.Standing{{Rate: c.Limit.Rate, Most: c.Limit.Most(), Unreadable: true}}, nil
	}
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
	}
	at, n, err := timedNumbers(reply)
	if err != nil || len(n) != 5 {
		return time.Time{}, nil, fmt.Errorf("%w: %w", limiter.ErrUnavailable, errReply)
	}
	return at, []limiter.Standing{{
		Rate: limiter.Rate{Count: n[3], Window: milliseconds(n[4])}, Most: n[3], Left: n[0], Used: n[3] - n[0],
		Next: milliseconds(n[1]), Full: milliseconds(n[2]),
	}}, nil
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
