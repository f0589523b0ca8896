package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Multi is all of several locks held as one: the hold is lost when any of them
// is. Reentrant locks of one Locker are taken all or none in one round trip, in a
// cluster if their names have the same hash tag. Others are taken one after
// another in the order of their names, the same in every process, so that two
// Multis never wait for each other; what was taken is given back before Multi
// waits for what was refused. The locks may be of different kinds and Lockers;
// fair ones are only taken when nobody queues. The hold belongs to the Locker of
// the first name: close that one first.
func Multi(locks ...*Lock) *Lock {
	k, lk := combineLocks(locks)
	if lk.err != nil {
		return lk
	}
	lk.kind = &multi{k}
	if one := newAtomicMulti(k.parts); one != nil {
		lk.kind = one
	}
	return lk
}

// minPartTimeout is the least time that a server gets to answer, unless the lease is
// so short that it would be a third of it.
const minPartTimeout = 250 * time.Millisecond

// Redlock (Redlock) is a majority of several locks, which live on servers that know nothing of
// each other: it survives the loss of a minority. The hold is lost when fewer
// than a majority are renewed. All are asked at the same time, each for at most
// a twentieth of the lease or 250 ms. Like every lock with a lease it needs a fence where
// a second holder would do harm.
func Redlock(locks ...*Lock) *Lock {
	k, lk := combineLocks(locks)
	if lk.err != nil {
		return lk
	}
	lk.kind = &redlock{k}
	return lk
}

// combinedParts is what the kinds of Multi and Red have in common.
type combinedParts struct {
	parts []*Lock
}

// combineLocks makes a lock, still without kind, of sorted parts.
func combineLocks(locks []*Lock) (combinedParts, *Lock) {
	if len(locks) == 0 {
		return combinedParts{}, &Lock{err: fmt.Errorf("%w: no locks to hold together", ErrInvalidName)}
	}
	parts := slices.Clone(locks)
	slices.SortStableFunc(parts, func(a, b *Lock) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.namespace, b.namespace))
	})
	first := parts[0]
	lk := &Lock{locker: first.locker, newOwner: first.locker.NewOwner, traits: traits{exclusive: true, reentrant: true}}
	names := make([]string, 0, len(parts))
	for i, p := range parts {
		lk.err = errors.Join(lk.err, p.err)
		lk.traits.exclusive = lk.traits.exclusive && p.traits.exclusive
		lk.traits.reentrant = lk.traits.reentrant && p.traits.reentrant
		if i > 0 && p.locker == parts[i-1].locker && p.name == parts[i-1].name {
			lk.err = errors.Join(lk.err, fmt.Errorf("%w: %q is held twice", ErrInvalidName, p.name))
		}
		lk.resources = append(lk.resources, p.resourceNames()...)
		names = append(names, fmt.Sprintf("%d:%s%s", len(p.name), p.namespace, p.name))
	}
	lk.name = strings.Join(names, ",")
	return combinedParts{parts}, lk
}

// release releases all parts, and says what each answered.
func (b combinedParts) release(ctx context.Context, c callParams) ([]releaseResult, []error) {
	partings := make([]releaseResult, len(b.parts))
	errs := make([]error, len(b.parts))
	var all sync.WaitGroup
	for i, p := range b.parts {
		all.Go(func() { partings[i], errs[i] = p.kind.release(ctx, c) })
	}
	all.Wait()
	return partings, errs
}

// mergeReleases is the parting of all parts, of which so many must have been held.
func mergeReleases(partings []releaseResult, enough int) releaseResult {
	held, notified := 0, int64(0)
	for _, p := range partings {
		if p.held {
			held++
		}
		notified += p.notified
	}
	return releaseResult{held: held >= enough, notified: notified}
}

// undo gives back what parts may have, although ctx may be over; what does not
// answer now is undone in the background.
func (b combinedParts) undo(ctx context.Context, c callParams, parts []*Lock) {
	c.count = 0
	var all sync.WaitGroup
	for _, p := range parts {
		all.Go(func() {
			fresh, cancel := p.locker.callContext(ctx)
			defer cancel()
			if _, err := p.kind.release(fresh, c); err != nil {
				b.releaseInBackground(p, c)
			}
		})
	}
	all.Wait()
}

// releaseInBackground gives p back in the background. It is the first Locker's doing, as the
// hold is: that one knows what the owner has open.
func (b combinedParts) releaseInBackground(p *Lock, c callParams) {
	first := b.parts[0].locker
	first.releaseInBackground(c.owner, func() { first.retryRelease(p.kind, c) })
}

// multi is the kind of Multi.
type multi struct{ combinedParts }

func (k *multi) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	c.willWait = false
	for i, p := range k.parts {
		a, err := p.kind.attempt(ctx, c)
		if err == nil && a.held {
			continue
		}
		taken := k.parts[:i]
		if err != nil {
			taken = k.parts[:i+1] // perhaps
		}
		if c.count == 1 {
			k.undo(ctx, c, taken)
		}
		return a, err
	}
	return attemptResult{held: true}, nil
}

func (k *multi) extend(ctx context.Context, c callParams) (bool, error) {
	for _, p := range k.parts {
		if held, err := p.kind.extend(ctx, c); err != nil || !held {
			return false, err
		}
	}
	return true, nil
}

func (k *multi) release(ctx context.Context, c callParams) (releaseResult, error) {
	partings, errs := k.combinedParts.release(ctx, c)
	return mergeReleases(partings, len(k.parts)), errors.Join(errs...)
}

// redlock is the kind of Red.
type redlock struct{ combinedParts }

func (k *redlock) quorum() int { return len(k.parts)/2 + 1 }

// partTimeout is the time that one part may take.
func (k *redlock) partTimeout(ctx context.Context, c callParams) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(c.lease/20, min(c.lease/3, minPartTimeout)))
}

// askAll asks all parts at the same time and returns how many said yes.
func (k *redlock) askAll(ctx context.Context, c callParams, ask func(context.Context, *Lock) (bool, error)) (int, error) {
	ctx, cancel := k.partTimeout(ctx, c)
	defer cancel()
	yes := make([]bool, len(k.parts))
	errs := make([]error, len(k.parts))
	var all sync.WaitGroup
	for i, p := range k.parts {
		all.Go(func() { yes[i], errs[i] = ask(ctx, p) })
	}
	all.Wait()
	n := 0
	for _, y := range yes {
		if y {
			n++
		}
	}
	return n, errors.Join(errs...)
}

func (k *redlock) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	c.willWait = false
	answers := make(chan attemptResult, len(k.parts))
	n, err := k.askAll(ctx, c, func(ctx context.Context, p *Lock) (bool, error) {
		a, err := p.kind.attempt(ctx, c)
		if err == nil && !a.held {
			answers <- a
		}
		return a.held, err
	})
	if n >= k.quorum() {
		return attemptResult{held: true}, nil
	}
	if c.count == 1 {
		k.undo(ctx, c, k.parts)
	}
	if len(answers) == 0 {
		return attemptResult{}, err // nobody refused: too many are gone
	}
	return <-answers, nil
}

func (k *redlock) extend(ctx context.Context, c callParams) (bool, error) {
	n, err := k.askAll(ctx, c, func(ctx context.Context, p *Lock) (bool, error) {
		return p.kind.extend(ctx, c)
	})
	if n >= k.quorum() {
		return true, nil
	}
	return false, err
}

// release succeeds when a majority has answered; the others hear of it later.
func (k *redlock) release(ctx context.Context, c callParams) (releaseResult, error) {
	ctx, cancel := k.partTimeout(ctx, c)
	defer cancel()
	partings, errs := k.combinedParts.release(ctx, c)
	answered := 0
	for _, err := range errs {
		if err == nil {
			answered++
		}
	}
	if answered < k.quorum() {
		return releaseResult{}, errors.Join(errs...)
	}
	for i, err := range errs {
		if err != nil && c.count == 0 {
			k.releaseInBackground(k.parts[i], c)
		}
	}
	return mergeReleases(partings, k.quorum()), nil
}
