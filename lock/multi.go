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

// Multi returns several locks as one lock: all or none are held, and the hold is lost when
// any of them is. Reentrant locks of one Locker are taken in one round trip, in a cluster
// if their names have the same hash tag. Other locks are taken one after another in the
// order of their names, which is the same in every process and avoids deadlocks; before
// Multi waits for one, it releases those it has taken. The locks may have different kinds
// and Lockers; fair ones are taken only if their queue is empty. The hold belongs to the
// Locker of the first name: close that one first.
func Multi(locks ...*Lock) *Lock {
	k, lk := gather(locks)
	if lk.err != nil {
		return lk
	}
	lk.kind = &multi{k}
	if one := newJoint(k.parts); one != nil {
		lk.kind = one
	}
	return lk
}

// redBrief is the minimum timeout for a server, unless that exceeds a third of the lease.
const redBrief = 250 * time.Millisecond

// Red (Redlock) returns a lock that is held if a majority of several locks is, on
// independent servers: it survives the loss of a minority of them. The hold is lost when
// fewer than a majority are renewed. All are called concurrently, each with a timeout of a
// twentieth of the lease or 250 ms. Like every lock with a lease, it needs fencing tokens
// if a second holder would do harm.
func Red(locks ...*Lock) *Lock {
	k, lk := gather(locks)
	if lk.err != nil {
		return lk
	}
	lk.kind = &red{k}
	return lk
}

// heldParts is the common part of the kinds of Multi and Red.
type heldParts struct {
	parts []*Lock
}

// gather returns a lock without a kind, and its parts in order.
func gather(locks []*Lock) (heldParts, *Lock) {
	if len(locks) == 0 {
		return heldParts{}, &Lock{err: fmt.Errorf("%w: no locks to hold together", ErrBadName)}
	}
	parts := slices.Clone(locks)
	slices.SortStableFunc(parts, func(a, b *Lock) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.role, b.role))
	})
	first := parts[0]
	lk := &Lock{locker: first.locker, newOwner: first.locker.NewOwner, traits: traits{exclusive: true, enters: true}}
	names := make([]string, 0, len(parts))
	for i, p := range parts {
		lk.err = errors.Join(lk.err, p.err)
		lk.traits.exclusive = lk.traits.exclusive && p.traits.exclusive
		lk.traits.enters = lk.traits.enters && p.traits.enters
		if i > 0 && p.locker == parts[i-1].locker && p.name == parts[i-1].name {
			lk.err = errors.Join(lk.err, fmt.Errorf("%w: %q is held twice", ErrBadName, p.name))
		}
		lk.things = append(lk.things, p.all()...)
		names = append(names, fmt.Sprintf("%d:%s%s", len(p.name), p.role, p.name))
	}
	lk.name = strings.Join(names, ",")
	return heldParts{parts}, lk
}

// release releases all parts, and returns their results.
func (b heldParts) release(ctx context.Context, c claim) ([]released, []error) {
	partings := make([]released, len(b.parts))
	errs := make([]error, len(b.parts))
	var all sync.WaitGroup
	for i, p := range b.parts {
		all.Go(func() { partings[i], errs[i] = p.kind.release(ctx, c) })
	}
	all.Wait()
	return partings, errs
}

// together combines the results of the parts, of which at least enough must have been held.
func together(partings []released, enough int) released {
	held, notified := 0, int64(0)
	for _, p := range partings {
		if p.held {
			held++
		}
		notified += p.notified
	}
	return released{held: held >= enough, notified: notified}
}

// undo releases parts that may be held, although ctx may be done; what gets no reply is
// repeated in the background.
func (b heldParts) undo(ctx context.Context, c claim, parts []*Lock) {
	c.count = 0
	var all sync.WaitGroup
	for _, p := range parts {
		all.Go(func() {
			fresh, cancel := p.locker.bounded(ctx)
			defer cancel()
			if _, err := p.kind.release(fresh, c); err != nil {
				b.settle(p, c)
			}
		})
	}
	all.Wait()
}

// settle releases p in the background. It uses the first Locker, which owns the hold and
// knows the pending releases of the owner.
func (b heldParts) settle(p *Lock, c claim) {
	first := b.parts[0].locker
	first.settle(c.owner, func() { first.withdraw(p.kind, c) })
}

// multi is the kind of Multi.
type multi struct{ heldParts }

func (k *multi) attempt(ctx context.Context, c claim) (answer, error) {
	c.patient = false
	for i, p := range k.parts {
		a, err := p.kind.attempt(ctx, c)
		if err == nil && a.held {
			continue
		}
		taken := k.parts[:i]
		if err != nil {
			taken = k.parts[:i+1] // the last one perhaps
		}
		if c.count == 1 {
			k.undo(ctx, c, taken)
		}
		return a, err
	}
	return answer{held: true}, nil
}

func (k *multi) extend(ctx context.Context, c claim) (bool, error) {
	for _, p := range k.parts {
		if held, err := p.kind.extend(ctx, c); err != nil || !held {
			return false, err
		}
	}
	return true, nil
}

func (k *multi) release(ctx context.Context, c claim) (released, error) {
	partings, errs := k.heldParts.release(ctx, c)
	return together(partings, len(k.parts)), errors.Join(errs...)
}

// red is the kind of Red.
type red struct{ heldParts }

func (k *red) quorum() int { return len(k.parts)/2 + 1 }

// partTimeout returns a context with the timeout for one part.
func (k *red) partTimeout(ctx context.Context, c claim) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(c.lease/20, min(c.lease/3, redBrief)))
}

// each calls all parts concurrently, and returns how many succeeded.
func (k *red) each(ctx context.Context, c claim, ask func(context.Context, *Lock) (bool, error)) (int, error) {
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

func (k *red) attempt(ctx context.Context, c claim) (answer, error) {
	c.patient = false
	answers := make(chan answer, len(k.parts))
	n, err := k.each(ctx, c, func(ctx context.Context, p *Lock) (bool, error) {
		a, err := p.kind.attempt(ctx, c)
		if err == nil && !a.held {
			answers <- a
		}
		return a.held, err
	})
	if n >= k.quorum() {
		return answer{held: true}, nil
	}
	if c.count == 1 {
		k.undo(ctx, c, k.parts)
	}
	if len(answers) == 0 {
		return answer{}, err // none refused: too many servers are unreachable
	}
	return <-answers, nil
}

func (k *red) extend(ctx context.Context, c claim) (bool, error) {
	n, err := k.each(ctx, c, func(ctx context.Context, p *Lock) (bool, error) {
		return p.kind.extend(ctx, c)
	})
	if n >= k.quorum() {
		return true, nil
	}
	return false, err
}

// release succeeds when a majority has replied; the others are called again later.
func (k *red) release(ctx context.Context, c claim) (released, error) {
	ctx, cancel := k.partTimeout(ctx, c)
	defer cancel()
	partings, errs := k.heldParts.release(ctx, c)
	answered := 0
	for _, err := range errs {
		if err == nil {
			answered++
		}
	}
	if answered < k.quorum() {
		return released{}, errors.Join(errs...)
	}
	for i, err := range errs {
		if err != nil && c.count == 0 {
			k.settle(k.parts[i], c)
		}
	}
	return together(partings, k.quorum()), nil
}
