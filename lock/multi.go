package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Multi returns a lock that combines several locks (all or none); its hold is lost if any
// of them is lost. Reentrant locks of one Locker are acquired atomically in one round
// trip, in a cluster if their names have the same hash tag. Other locks are acquired one
// after another in the order of their names, which is the same in every process, so that
// two Multis cannot deadlock. If a lock is not free, Multi releases those it has acquired
// before it waits.
//
// The locks may be of different kinds and Lockers. Fair locks are acquired only while
// their queue is empty. The hold belongs to the Locker of the first name, which must be
// closed first.
func Multi(locks ...*Lock) *Lock {
	parts, lk := combineLocks(locks)
	if lk.err != nil {
		return lk
	}
	lk.kind = &multi{combined{parts, len(parts)}}
	if one := jointKind(parts); one != nil {
		lk.kind = one
	}
	return lk
}

// minPartTimeout is the minimum time for the reply of each server, unless it exceeds a
// third of the lease.
const minPartTimeout = 250 * time.Millisecond

// Redlock returns a lock that is held while a majority of locks on independent servers is
// held (the Redlock algorithm), so that it survives the loss of a minority. The hold is
// lost if fewer than a majority can be renewed. The servers are called concurrently, each
// with a timeout of a twentieth of the lease, but at least 250 ms. Like any lock with a
// lease it needs a fencing token where a second holder would do harm.
func Redlock(locks ...*Lock) *Lock {
	parts, lk := combineLocks(locks)
	if lk.err != nil {
		return lk
	}
	lk.kind = &redlock{combined{parts, len(parts)/2 + 1}}
	return lk
}

// combined is the common part of the kinds of Multi and Redlock.
type combined struct {
	parts  []*Lock
	quorum int // of the parts that must be held
}

// combineLocks returns the sorted locks and a combined Lock without a kind.
func combineLocks(locks []*Lock) ([]*Lock, *Lock) {
	if len(locks) == 0 {
		return nil, &Lock{err: fmt.Errorf("%w: no locks to combine", ErrInvalidName)}
	}
	if slices.Contains(locks, nil) {
		return nil, &Lock{err: fmt.Errorf("%w: a lock to combine is nil", ErrInvalidArgument)}
	}
	parts := slices.Clone(locks)
	slices.SortStableFunc(parts, func(a, b *Lock) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.namespace, b.namespace))
	})
	first := parts[0]
	lk := &Lock{locker: first.locker, namespace: "all of ", newOwner: first.locker.NewOwner, traits: traits{exclusive: true, reentrant: true}}
	names := make([]string, 0, len(parts))
	for i, p := range parts {
		lk.err = errors.Join(lk.err, p.err)
		lk.traits.exclusive = lk.traits.exclusive && p.traits.exclusive
		lk.traits.reentrant = lk.traits.reentrant && p.traits.reentrant
		if i > 0 && p.locker == parts[i-1].locker && p.name == parts[i-1].name {
			lk.err = errors.Join(lk.err, fmt.Errorf("%w: %q appears twice", ErrInvalidName, p.name))
		}
		lk.resources = append(lk.resources, p.resourceNames()...)
		names = append(names, fmt.Sprintf("%d:%s%s", len(p.name), p.namespace, p.name))
	}
	lk.name = strings.Join(names, ",")
	return parts, lk
}

// askAll calls ask for parts concurrently. It returns how many replied that they are, or were, held, and those that did not
// reply, with their errors.
func askAll(parts []*Lock, ask func(p *Lock) (held bool, err error)) (held int, silent []*Lock, err error) {
	var mu sync.Mutex // guards the results
	var all sync.WaitGroup
	for _, p := range parts {
		all.Go(func() {
			yes, failed := ask(p)
			mu.Lock()
			defer mu.Unlock()
			if failed != nil {
				silent, err = append(silent, p), errors.Join(err, failed)
			} else if yes {
				held++
			}
		})
	}
	all.Wait()
	return held, silent, err
}

// extend extends all parts concurrently. It succeeds if a quorum is held. What cannot have one is lost, whatever the parts
// that have not replied would say.
func (c combined) extend(ctx context.Context, call callParams) (bool, error) {
	held, silent, err := askAll(c.parts, func(p *Lock) (bool, error) { return p.kind.extend(ctx, call) })
	if held >= c.quorum || held+len(silent) < c.quorum {
		return held >= c.quorum, nil
	}
	return false, err
}

// release releases all parts concurrently. It succeeds if a quorum has replied, or cannot be held; the other parts are
// released in the background.
func (c combined) release(ctx context.Context, call callParams) (releaseResult, error) {
	var notified atomic.Int64
	held, silent, err := askAll(c.parts, func(p *Lock) (bool, error) {
		r, err := p.kind.release(ctx, call)
		notified.Add(r.notified)
		return r.held, err
	})
	if len(c.parts)-len(silent) < c.quorum && held+len(silent) >= c.quorum {
		return releaseResult{}, err
	}
	if call.count == 0 {
		for _, p := range silent {
			c.releaseInBackground(p, call)
		}
	}
	return releaseResult{held: held >= c.quorum, notified: notified.Load()}, nil
}

// undo releases parts that may have been acquired, even if ctx has ended. A release that
// fails is retried in the background.
func (c combined) undo(ctx context.Context, call callParams, parts []*Lock) {
	call.count = 0
	askAll(parts, func(p *Lock) (bool, error) {
		callCtx, cancel := p.locker.callContext(ctx)
		defer cancel()
		_, err := p.kind.release(callCtx, call)
		if err != nil {
			c.releaseInBackground(p, call)
		}
		return false, err
	})
}

// releaseInBackground releases p in the background. It uses the Locker of the first part,
// which owns the hold, because that Locker tracks the pending releases of the owner.
func (c combined) releaseInBackground(p *Lock, call callParams) {
	first := c.parts[0].locker
	first.releaseInBackground(call.owner, func() { first.retryRelease(p.kind, call, always) })
}

// multi is the kind of a Multi that no jointKind can be.
type multi struct{ combined }

func (m *multi) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	c.willWait = false
	for i, p := range m.parts {
		a, err := p.kind.attempt(ctx, c)
		if err == nil && a.held {
			continue
		}
		taken := m.parts[:i]
		if err != nil {
			taken = m.parts[:i+1] // its outcome is unknown
		}
		if c.count == 1 {
			m.undo(ctx, c, taken)
		}
		return a, err
	}
	return attemptResult{held: true}, nil
}

// redlock is the kind of Redlock.
type redlock struct{ combined }

// partTimeout returns a context with the timeout of one part.
func (r *redlock) partTimeout(ctx context.Context, c callParams) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(c.lease/20, min(c.lease/3, minPartTimeout)))
}

func (r *redlock) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	c.willWait = false
	answers := make(chan attemptResult, len(r.parts))
	call, cancel := r.partTimeout(ctx, c)
	defer cancel()
	n, _, err := askAll(r.parts, func(p *Lock) (bool, error) {
		a, err := p.kind.attempt(call, c)
		if err == nil && !a.held {
			answers <- a
		}
		return a.held, err
	})
	if n >= r.quorum {
		return attemptResult{held: true}, nil
	}
	if c.count == 1 {
		r.undo(ctx, c, r.parts)
	}
	if len(answers) == 0 {
		return attemptResult{}, err // no part is held by others: too many failed
	}
	return <-answers, nil
}

func (r *redlock) extend(ctx context.Context, c callParams) (bool, error) {
	ctx, cancel := r.partTimeout(ctx, c)
	defer cancel()
	return r.combined.extend(ctx, c)
}

func (r *redlock) release(ctx context.Context, c callParams) (releaseResult, error) {
	ctx, cancel := r.partTimeout(ctx, c)
	defer cancel()
	return r.combined.release(ctx, c)
}

// jointKind returns the kind of a Multi of reentrant locks that one script can lock and unlock atomically, in one
// round trip. Its data in Redis is the same as that of a multi. It returns nil unless one script can hold all locks:
// they must be reentrant locks of one Locker, and in a cluster their names must have the same hash tag.
func jointKind(locks []*Lock) *scripted {
	l := locks[0].locker
	_, cluster := l.rdb.(*redis.ClusterClient)
	var keys, channels []string
	give := []any{ownerID, holdCount, publishVerb}
	for _, lk := range locks {
		part, ok := lk.kind.(*scripted)
		if !ok || lk.locker != l || part.take.script != l.scripts["reentrant_lock"] {
			return nil
		}
		if cluster && (!hasHashTag(lk.name) || hashTag(lk.name) != hashTag(locks[0].name)) {
			return nil
		}
		keys, channels = append(keys, lk.name), append(channels, part.channels...)
		give = append(give, part.channels[0])
	}
	return &scripted{
		locker: l, channels: channels,
		take:    l.request("joint_lock", keys, ownerID, holdCount, leaseTime),
		prolong: l.request("joint_extend", keys, ownerID, leaseTime),
		give:    l.request("joint_unlock", keys, give...),
	}
}

// hashTag returns the hash tag of a name that has one.
func hashTag(name string) string {
	_, rest, _ := strings.Cut(name, "{")
	inside, _, _ := strings.Cut(rest, "}")
	return inside
}
