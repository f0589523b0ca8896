package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

// An announcer is a store that notifies other processes of changes, and receives their
// notifications. See redisstore.Store.
type announcer interface {
	Announce(ctx context.Context, c limiter.Change) error
	OnChange(f func(limiter.Change))
}

// An appliedChange is what became of a change of one limit.
type appliedChange struct {
	everywhere bool
	affected   bool    // there was something to change
	later      bool    // it waits for the store
	granted    []int64 // for each claim: the permits that a grant has given back
	repeated   bool    // the store timed out and was asked again
}

// applyToStore applies c to the store. It looks first whether the store answers: one that hangs would carry out
// later what it was sent, however long after. The permits that a grant gives back are those as of then.
func (a *admitter) applyToStore(ctx context.Context, c limiter.Change, claims []limiter.Claim) (done appliedChange, err error) {
	in, err := a.store.Inspect(ctx, claims)
	if err != nil {
		return done, err
	}
	done.repeated = in.Repeated
	done.affected = c.Ban > 0 || slices.ContainsFunc(in.Statuses, func(s limiter.KeyStatus) bool {
		return s.BannedFor > 0 || c.Action != limiter.ActionBan && (s.Used > 0 || s.Unreadable)
	})
	err = a.metrics.measure(string(c.Action), func() error { return c.Apply(ctx, a.store, claims) })
	if c.Action != limiter.ActionGrant {
		return done, err
	}
	if errors.Is(err, limiter.ErrUnavailable) {
		return done, fmt.Errorf("no answer in time, it is not known whether the permits were granted; weir keys get tells: %v", err)
	}
	for _, s := range in.Statuses {
		done.granted = append(done.granted, min(c.Grant, max(s.Used, 0)))
	}
	return done, err
}

// announce notifies the other nodes that c was applied to claims.
func (a *admitter) announce(ctx context.Context, c limiter.Change, claims []limiter.Claim) error {
	for _, k := range keysOf(claims) {
		c.Key, c.Limits = k, nil
		for _, claim := range claims {
			if claim.Key == k {
				c.Limits = append(c.Limits, claim.Limit.Name)
			}
		}
		if err := a.announcer.Announce(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// keysOf returns the keys of claims without duplicates.
func keysOf(claims []limiter.Claim) (keys []limiter.Key) {
	for _, c := range claims {
		if !slices.Contains(keys, c.Key) {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// applyChange applies c to the local store. Granted permits are divided by the number of nodes.
func (f *fallback) applyChange(ctx context.Context, c limiter.Change, claims []limiter.Claim) error {
	if n := int64(f.nodes()); c.Action == limiter.ActionGrant {
		c.Grant = (c.Grant + n - 1) / n
		claims = f.shares(claims)
	}
	return c.Apply(ctx, f.local, claims)
}

// A localDenier is a store that can refuse some claims without I/O, from a local cache of refusals.
// See redisstore.Store.
type localDenier interface {
	Denied(claims []limiter.Claim, d *limiter.Decision) bool
}

// readSends returns the statuses of claims.
func (a *admitter) readSends(ctx context.Context, claims []limiter.Claim) ([]limiter.KeyStatus, error) {
	in, err := a.sharedStore().Inspect(ctx, claims)
	if err != nil {
		return nil, fmt.Errorf("read what was sent: %w", err)
	}
	return in.Statuses, nil
}
