package limit

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

// An AppliedChange is what became of a change of one limit.
type AppliedChange struct {
	Everywhere bool
	Affected   bool    // there was something to change
	Later      bool    // it waits for the store
	Granted    []int64 // for each claim: the permits that a grant has given back
	Repeated   bool    // the store timed out and was asked again
}

// ApplyToStore applies c to the store. It looks first whether the store answers: one that hangs would carry out
// Later what it was sent, however long after. The permits that a grant gives back are those as of then.
func (a *Admitter) ApplyToStore(ctx context.Context, c limiter.Change, claims []limiter.Claim) (done AppliedChange, err error) {
	in, err := a.Store.Inspect(ctx, claims)
	if err != nil {
		return done, err
	}
	done.Repeated = in.Repeated
	done.Affected = c.Ban > 0 || slices.ContainsFunc(in.Statuses, func(s limiter.KeyStatus) bool {
		return s.BannedFor > 0 || c.Action != limiter.ActionBan && (s.Used > 0 || s.Unreadable)
	})
	err = a.metrics.measure(string(c.Action), func() error { return c.Apply(ctx, a.Store, claims) })
	if c.Action != limiter.ActionGrant {
		return done, err
	}
	if errors.Is(err, limiter.ErrUnavailable) {
		return done, fmt.Errorf("no answer in time, it is not known whether the permits were granted; weir keys get tells: %v", err)
	}
	for _, s := range in.Statuses {
		done.Granted = append(done.Granted, min(c.Grant, max(s.Used, 0)))
	}
	return done, err
}

// Announce notifies the other nodes that c was applied to claims.
func (a *Admitter) Announce(ctx context.Context, c limiter.Change, claims []limiter.Claim) error {
	for _, k := range KeysOf(claims) {
		c.Key, c.Limits = k, nil
		for _, claim := range claims {
			if claim.Key == k {
				c.Limits = append(c.Limits, claim.Limit.Name)
			}
		}
		if err := a.Announcer.Announce(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// KeysOf returns the keys of claims without duplicates.
func KeysOf(claims []limiter.Claim) (keys []limiter.Key) {
	for _, c := range claims {
		if !slices.Contains(keys, c.Key) {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// ApplyChange applies c to the local store. Granted permits are divided by the number of nodes.
func (f *Fallback) ApplyChange(ctx context.Context, c limiter.Change, claims []limiter.Claim) error {
	if n := int64(f.Nodes()); c.Action == limiter.ActionGrant {
		c.Grant = (c.Grant + n - 1) / n
		claims = f.Shares(claims)
	}
	return c.Apply(ctx, f.Local, claims)
}

// A localDenier is a store that can refuse some claims without I/O, from a local cache of refusals.
// See redisstore.Store.
type localDenier interface {
	Denied(claims []limiter.Claim, d *limiter.Decision) bool
}

// ReadSends returns the statuses of claims.
func (a *Admitter) ReadSends(ctx context.Context, claims []limiter.Claim) ([]limiter.KeyStatus, error) {
	in, err := a.SharedStore().Inspect(ctx, claims)
	if err != nil {
		return nil, fmt.Errorf("read what was sent: %w", err)
	}
	return in.Statuses, nil
}

// InspectHere returns the statuses of claims in the fallback of this node.
func (a *Admitter) InspectHere(ctx context.Context, claims []limiter.Claim) (limiter.Inspection, error) {
	return a.Fallback.Local.Inspect(ctx, a.Fallback.Shares(claims))
}
