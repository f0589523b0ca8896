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
	in := limiter.Inspection{Statuses: make([]limiter.KeyStatus, len(claims))}
	if err := limiter.CheckClaims(claims); err != nil || len(claims) == 0 {
		return in, err
	}
	var mu sync.Mutex // guards in
	err := s.forEachPart(claims, func(p *part) error {
		at, standings, err := s.inspect(ctx, p.claims)
		if err != nil {
			return fmt.Errorf("inspect %d claims: %w", len(p.claims), err)
		}
		mu.Lock()
		defer mu.Unlock()
		if in.At.IsZero() || at.Before(in.At) { // nodes have clocks of their own
			in.At = at
		}
		for i, place := range p.indices {
			in.Statuses[place] = standings[i]
		}
		return nil
	})
	return in, err
}

// inspect asks about the claims of one part.
func (s *Store) inspect(ctx context.Context, claims []limiter.Claim) (time.Time, []limiter.KeyStatus, error) {
	if claims[0].RedissonName != "" {
		return s.inspectShared(ctx, claims[0])
	}
	b := newPayload(s.names, claims)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	reply, err := s.scripts.inspect.run(ctx, s.client, b.keyNames(), b.args())
	if err != nil {
		s.reloadCluster()
		return time.Time{}, nil, fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
	}
	at, list, err := timedNumbers(reply)
	if err != nil || len(list) != 6*len(claims) {
		return time.Time{}, nil, fmt.Errorf("%w: %w", limiter.ErrUnavailable, errReply)
	}
	standings := make([]limiter.KeyStatus, len(claims))
	for i, c := range claims {
		standings[i] = readStatus(list[6*i:6*i+6], c)
	}
	return at, standings, nil
}

// readStatus reads what inspect.lua says of one window.
func readStatus(n []int64, c limiter.Claim) limiter.KeyStatus {
	return limiter.KeyStatus{
		Rate: c.Limit.Rate, Capacity: c.Limit.Capacity(), Remaining: n[1], Used: n[2],
		NextIn: milliseconds(n[3]), FullIn: milliseconds(n[4]), BannedFor: milliseconds(n[5]), Unreadable: n[0] == 0,
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
func (s *Store) inspectShared(ctx context.Context, c limiter.Claim) (time.Time, []limiter.KeyStatus, error) {
	reply, err := s.runShared(ctx, s.shared(c.RedissonFormat).inspect, c)
	if errors.Is(err, ErrShared) {
		return time.Now(), []limiter.KeyStatus{{Rate: c.Limit.Rate, Capacity: c.Limit.Capacity(), Unreadable: true}}, nil
	}
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
	}
	at, n, err := timedNumbers(reply)
	if err != nil || len(n) != 5 {
		return time.Time{}, nil, fmt.Errorf("%w: %w", limiter.ErrUnavailable, errReply)
	}
	return at, []limiter.KeyStatus{{
		Rate: limiter.Rate{Count: n[3], Window: milliseconds(n[4])}, Capacity: n[3], Remaining: n[0], Used: n[3] - n[0],
		NextIn: milliseconds(n[1]), FullIn: milliseconds(n[2]),
	}}, nil
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
