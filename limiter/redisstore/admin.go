package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// Renew implements limiter.AdminStore.
func (s *Store) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	return s.changeParts("renew permits", claims, func(part *part) error {
		held, err := s.change(ctx, "renew", part.claims, refundArgs(part.claims, p)...)
		if err == nil && held < int64(len(part.claims)) {
			err = limiter.ErrNotHeld
		}
		return err
	})
}

// Reset implements limiter.AdminStore. What is being reported to Redis comes there before the reset.
func (s *Store) Reset(ctx context.Context, claims []limiter.Claim) error {
	select {
	case s.reports.sendLock <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("reset: %w: %w", limiter.ErrUnavailable, context.Cause(ctx))
	}
	wait := s.StartReset(claims)
	<-s.reports.sendLock
	return wait()
}

// Grant implements limiter.AdminStore.
func (s *Store) Grant(ctx context.Context, claims []limiter.Claim) error {
	return s.changeParts("grant", claims, func(p *part) error {
		rest, err := s.change(ctx, "grant", p.claims, costs(p.claims)...)
		for p.claims[0].RedissonName != "" && rest > 0 && err == nil { // each call gives a bounded part
			rest, err = s.change(ctx, "grant", p.claims, rest)
		}
		return err
	})
}

// Ban implements limiter.AdminStore.
func (s *Store) Ban(ctx context.Context, claims []limiter.Claim, d time.Duration) error {
	if err := limiter.CheckBan(d); err != nil {
		return err
	}
	if slices.ContainsFunc(claims, func(c limiter.Claim) bool { return c.RedissonName != "" }) {
		return fmt.Errorf("%w: a limiter shared with Redisson cannot be banned", limiter.ErrInvalidLimit)
	}
	return s.changeParts("ban", claims, func(p *part) error {
		_, err := s.change(ctx, "ban", p.claims, d.Milliseconds())
		return err
	})
}

// changeParts calls change for each part of claims. verb is for errors.
func (s *Store) changeParts(verb string, claims []limiter.Claim, change func(p *part) error) error {
	if err := limiter.CheckClaims(claims); err != nil || len(claims) == 0 {
		return err
	}
	return eachPart(s.parts(claims), func(p *part) error {
		if err := change(p); err != nil {
			return fmt.Errorf("%s in %d limits: %w", verb, len(p.claims), err)
		}
		s.refusals.invalidateClaims(p.claims)
		return nil
	})
}

// Inspect implements limiter.AdminStore: one script call for each slot. No request waits
// for it, so each may take up to a second, also if Options.Timeout is shorter, and one that
// timed out is repeated once, which the Inspection reports: a slow reply is not an outage.
func (s *Store) Inspect(ctx context.Context, claims []limiter.Claim) (limiter.Inspection, error) {
	in := limiter.Inspection{Statuses: make([]limiter.KeyStatus, len(claims))}
	if err := limiter.CheckClaims(claims); err != nil || len(claims) == 0 {
		return in, err
	}
	var mu sync.Mutex // guards in
	err := eachPart(s.parts(claims), func(p *part) error {
		one, err := s.inspect(ctx, p.claims)
		if err != nil {
			return fmt.Errorf("inspect %d limits: %w", len(p.claims), err)
		}
		mu.Lock()
		defer mu.Unlock()
		if in.At.IsZero() || one.At.Before(in.At) { // nodes have clocks of their own
			in.At = one.At
		}
		in.Repeated = in.Repeated || one.Repeated
		for i, index := range p.indices {
			in.Statuses[index] = one.Statuses[i]
		}
		return nil
	})
	return in, err
}

// inspect inspects the claims of one part.
func (s *Store) inspect(ctx context.Context, claims []limiter.Claim) (in limiter.Inspection, err error) {
	if claims[0].RedissonName != "" {
		return s.inspectRedisson(ctx, claims[0])
	}
	list, repeated, err := s.runPatiently(ctx, s.changeOf("inspect", claims))
	if err != nil {
		s.reloadCluster()
	}
	at, list, err := readTime(list, err)
	if err == nil && len(list) != statusNumbers*len(claims) {
		err = wire.ErrReply
	}
	if err != nil {
		return in, fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
	}
	in = limiter.Inspection{At: at, Statuses: make([]limiter.KeyStatus, len(claims)), Repeated: repeated}
	for i, c := range claims {
		in.Statuses[i] = readStatus(list[statusNumbers*i:], c)
	}
	return in, nil
}

// runPatiently runs a script that changes nothing, with a timeout of at least
// patientTimeout; if it times out, it is run once more. A first call opens a connection,
// for which a busy machine may need longer than the dial timeout.
func (s *Store) runPatiently(ctx context.Context, c changeCommand) (list []int64, repeated bool, err error) {
	list, err = s.runOnce(ctx, c)
	var slow net.Error
	if ctx.Err() == nil && !errors.Is(err, ErrOpen) && (errors.As(err, &slow) && slow.Timeout() || errors.Is(err, context.DeadlineExceeded)) {
		list, err = s.runOnce(ctx, c)
		return list, true, err
	}
	return list, false, err
}

// runOnce is one attempt of runPatiently. A node of a cluster that has not got the keys is
// not asked patiently, and neither is one whose circuit breaker tries whether it is reachable.
func (s *Store) runOnce(ctx context.Context, c changeCommand) ([]int64, error) {
	timeout := max(s.timeout, patientTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	node, _ := s.client.(*redis.Client)
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		var err error
		if node, err = cluster.MasterForKey(ctx, c.keys[0]); err != nil {
			return nil, err
		}
	}
	if b := breakerOf(node); b != nil && !b.own.IsClosed() {
		timeout = s.timeout
	}
	reply, err := c.script.run(ctx, withTimeout(node, timeout), c.keys, c.args)
	if hasCode(err, "MOVED", "ASK") {
		reply, err = c.script.run(ctx, s.client, c.keys, c.args)
	}
	return numbersOf(reply, err)
}

// statusNumbers is how many numbers the reply of lua/command/inspect.lua has about one window.
const statusNumbers = 8

// readStatus reads the reply of lua/command/inspect.lua about one window.
func readStatus(n []int64, c limiter.Claim) limiter.KeyStatus {
	return limiter.KeyStatus{
		Rate: c.Limit.Rate, Capacity: c.Limit.Capacity(), Remaining: n[1], Used: n[2],
		NextIn: milliseconds(n[3]), FullIn: milliseconds(n[4]), BannedFor: milliseconds(n[5]), Allowed: n[6], Confirmed: n[7], Unreadable: n[0] == 0,
	}
}

// inspectRedisson returns the status of a limiter shared with Redisson. One that cannot be
// used is Unreadable; that is not an error.
func (s *Store) inspectRedisson(ctx context.Context, c limiter.Claim) (in limiter.Inspection, err error) {
	list, err := s.run(ctx, s.changeOf("inspect", []limiter.Claim{c}))
	if errors.Is(err, ErrRedisson) {
		in.At, in.Statuses = time.Now(), []limiter.KeyStatus{{Rate: c.Limit.Rate, Capacity: c.Limit.Capacity(), Unreadable: true}}
		return in, nil
	}
	at, n, err := readTime(list, err)
	if err == nil && len(n) != 5 {
		err = wire.ErrReply
	}
	if err != nil {
		return in, fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
	}
	in.At, in.Statuses = at, []limiter.KeyStatus{{
		Rate: limiter.Rate{Count: n[3], Window: milliseconds(n[4])}, Capacity: n[3], Allowed: n[3], Remaining: n[0], Used: n[3] - n[0],
		NextIn: milliseconds(n[1]), FullIn: milliseconds(n[2]),
	}}
	return in, nil
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
