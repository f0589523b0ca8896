package lock

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/minio/highwayhash"
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

// minPartTimeout is the minimum time for the reply of each server, unless it exceeds a
// third of the lease.
const minPartTimeout = 250 * time.Millisecond

// Redlock returns a lock that is held while a majority of locks on independent servers is
// held (the Redlock algorithm), so that it survives the loss of a minority. The hold is
// lost if fewer than a majority can be renewed. The servers are called concurrently, each
// with a timeout of a twentieth of the lease, but at least 250 ms. Like any lock with a
// lease it needs a fencing token where a second holder would do harm.
func Redlock(locks ...*Lock) *Lock {
	k, lk := combineLocks(locks)
	if lk.err != nil {
		return lk
	}
	lk.kind = &redlock{k}
	return lk
}

// combinedParts are the common part of the kinds of Multi and Redlock.
type combinedParts struct {
	parts []*Lock
}

// combineLocks returns the sorted locks and a combined Lock without a kind.
func combineLocks(locks []*Lock) (combinedParts, *Lock) {
	if len(locks) == 0 {
		return combinedParts{}, &Lock{err: fmt.Errorf("%w: no locks to combine", ErrInvalidName)}
	}
	if slices.Contains(locks, nil) {
		return combinedParts{}, &Lock{err: fmt.Errorf("%w: a lock to combine is nil", ErrInvalidArgument)}
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
			lk.err = errors.Join(lk.err, fmt.Errorf("%w: %q appears twice", ErrInvalidName, p.name))
		}
		lk.resources = append(lk.resources, p.resourceNames()...)
		names = append(names, fmt.Sprintf("%d:%s%s", len(p.name), p.namespace, p.name))
	}
	lk.name = strings.Join(names, ",")
	return combinedParts{parts}, lk
}

// release releases all parts concurrently and returns their results.
func (b combinedParts) release(ctx context.Context, c callParams) ([]releaseResult, []error) {
	results := make([]releaseResult, len(b.parts))
	errs := make([]error, len(b.parts))
	var all sync.WaitGroup
	for i, p := range b.parts {
		all.Go(func() { results[i], errs[i] = p.kind.release(ctx, c) })
	}
	all.Wait()
	return results, errs
}

// mergeReleases merges the results of all parts. held is true if at least quorum of them
// were held.
func mergeReleases(results []releaseResult, quorum int) releaseResult {
	held, notified := 0, int64(0)
	for _, p := range results {
		if p.held {
			held++
		}
		notified += p.notified
	}
	return releaseResult{held: held >= quorum, notified: notified}
}

// undo releases parts that may have been acquired, even if ctx has ended. A release that
// fails is retried in the background.
func (b combinedParts) undo(ctx context.Context, c callParams, parts []*Lock) {
	c.count = 0
	var all sync.WaitGroup
	for _, p := range parts {
		all.Go(func() {
			callCtx, cancel := p.locker.callContext(ctx)
			defer cancel()
			if _, err := p.kind.release(callCtx, c); err != nil {
				b.releaseInBackground(p, c)
			}
		})
	}
	all.Wait()
}

// releaseInBackground releases p in the background. It uses the Locker of the first part,
// which owns the hold, because that Locker tracks the pending releases of the owner.
func (b combinedParts) releaseInBackground(p *Lock, c callParams) {
	first := b.parts[0].locker
	first.releaseInBackground(c.owner, func() { first.retryRelease(p.kind, c) })
}

// multi is the kind of a Multi that is not an atomicMulti.
type multi struct{ combinedParts }

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

func (m *multi) extend(ctx context.Context, c callParams) (bool, error) {
	for _, p := range m.parts {
		if held, err := p.kind.extend(ctx, c); err != nil || !held {
			return false, err
		}
	}
	return true, nil
}

func (m *multi) release(ctx context.Context, c callParams) (releaseResult, error) {
	results, errs := m.combinedParts.release(ctx, c)
	return mergeReleases(results, len(m.parts)), errors.Join(errs...)
}

// redlock is the kind of Redlock.
type redlock struct{ combinedParts }

func (r *redlock) quorum() int { return len(r.parts)/2 + 1 }

// partTimeout returns a context with the timeout of one part.
func (r *redlock) partTimeout(ctx context.Context, c callParams) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(c.lease/20, min(c.lease/3, minPartTimeout)))
}

// askAll calls ask for all parts concurrently and returns how many returned true.
func (r *redlock) askAll(ctx context.Context, c callParams, ask func(context.Context, *Lock) (bool, error)) (int, error) {
	ctx, cancel := r.partTimeout(ctx, c)
	defer cancel()
	yes := make([]bool, len(r.parts))
	errs := make([]error, len(r.parts))
	var all sync.WaitGroup
	for i, p := range r.parts {
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

func (r *redlock) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	c.willWait = false
	answers := make(chan attemptResult, len(r.parts))
	n, err := r.askAll(ctx, c, func(ctx context.Context, p *Lock) (bool, error) {
		a, err := p.kind.attempt(ctx, c)
		if err == nil && !a.held {
			answers <- a
		}
		return a.held, err
	})
	if n >= r.quorum() {
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
	n, err := r.askAll(ctx, c, func(ctx context.Context, p *Lock) (bool, error) {
		return p.kind.extend(ctx, c)
	})
	if n >= r.quorum() {
		return true, nil
	}
	return false, err
}

// release succeeds if a majority has replied; the other parts are released in the
// background.
func (r *redlock) release(ctx context.Context, c callParams) (releaseResult, error) {
	ctx, cancel := r.partTimeout(ctx, c)
	defer cancel()
	results, errs := r.combinedParts.release(ctx, c)
	replied := 0
	for _, err := range errs {
		if err == nil {
			replied++
		}
	}
	if replied < r.quorum() {
		return releaseResult{}, errors.Join(errs...)
	}
	for i, err := range errs {
		if err != nil && c.count == 0 {
			r.releaseInBackground(r.parts[i], c)
		}
	}
	return mergeReleases(results, r.quorum()), nil
}

// atomicMulti is the kind of a Multi of reentrant locks that one script can lock and
// unlock atomically, in one round trip. Its data in Redis is the same as that of a multi.
type atomicMulti struct {
	locker *Locker
	parts  []*reentrant
	keys   []string
}

// newAtomicMulti returns nil unless one script can hold all locks: they must be reentrant
// locks of one Locker, and in a cluster their names must have the same hash tag.
func newAtomicMulti(locks []*Lock) lockKind {
	k := &atomicMulti{locker: locks[0].locker}
	_, cluster := k.locker.rdb.(*redis.ClusterClient)
	for _, lk := range locks {
		part, ok := lk.kind.(*reentrant)
		if !ok || lk.locker != k.locker {
			return nil
		}
		if cluster && (!hasHashTag(lk.name) || hashTag(lk.name) != hashTag(locks[0].name)) {
			return nil
		}
		k.parts, k.keys = append(k.parts, part), append(k.keys, part.name)
	}
	return k
}

// hashTag returns the hash tag of a name that has one.
func hashTag(name string) string {
	_, rest, _ := strings.Cut(name, "{")
	inside, _, _ := strings.Cut(rest, "}")
	return inside
}

func (a *atomicMulti) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := a.locker.run(ctx, a.locker.scripts["joint_lock"], c.replicas, a.keys, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	refused := a.parts[min(max(int(r.index)-1, 0), len(a.parts)-1)]
	return r.attemptResult(a.locker.hub, refused.channel), nil
}

func (a *atomicMulti) extend(ctx context.Context, c callParams) (bool, error) {
	r, err := a.locker.run(ctx, a.locker.scripts["joint_extend"], 0, a.keys, c.owner.id, c.lease.Milliseconds())
	return r.done, err
}

func (a *atomicMulti) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := a.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	args := []any{c.owner.id, c.count, verb}
	for _, p := range a.parts {
		args = append(args, p.channel)
	}
	r, err := a.locker.run(ctx, a.locker.scripts["joint_unlock"], 0, a.keys, args...)
	return r.releaseResult(), err
}

// Group returns a lock of some values of a group, which are held together: all or none,
// in one round trip. Two Groups with the same name exclude each other if they have a
// value in common. In a cluster they need no hash tag, because a group is one key. It is
// compatible with Redisson's getMultiLock with a name and values: a hash under name with
// three fields for each value that is held.
//
// A value is the output of the codec of the Java program: the UTF-8 string for
// StringCodec, the decimal digits for LongCodec. The output of serializing codecs, such
// as the default Kryo codec, cannot be produced here. The order of values and duplicates
// do not matter.
//
// If a holder dies, its values are free one lease later, by the clock of Redis. Java uses
// its own clock for the end of a lease: if that clock is ahead by more than two thirds of
// the lease, Java acquires what is still held here; if it is behind by as much, this
// package acquires what is still held by Java.
//
// One owner can hold several Groups with the same name if they have no value in common.
func (l *Locker) Group(name string, values ...string) *Lock {
	fields := make([]string, 0, len(values))
	for _, v := range values {
		fields = append(fields, fieldOf(v))
	}
	slices.Sort(fields)
	k := &group{locker: l, name: name, channel: prefixedKey("redisson_lock__channel", name), fields: slices.Compact(fields)}
	lk := l.newLock(name, k, traits{exclusive: true, reentrant: true})
	lk.namespace = "group " + strings.Join(k.fields, "") + " "
	for _, f := range k.fields {
		lk.resources = append(lk.resources, "group "+f+" "+name)
	}
	if len(fields) == 0 && lk.err == nil {
		lk.err = fmt.Errorf("%w: group %q has no values", ErrInvalidName, name)
	}
	return lk
}

// fieldOf returns the field name of a value: its HighwayHash with Redisson's key, both
// halves in big-endian order as in Java, in base64 without padding.
func fieldOf(value string) string {
	var key []byte
	for _, n := range []uint64{0x9e3779b97f4a7c15, 0xf39cc0605cedc834, 0x1082276bf3a27251, 0xf86c6a11d0c18e95} {
		key = binary.LittleEndian.AppendUint64(key, n)
	}
	sum := highwayhash.Sum128([]byte(value), key)
	slices.Reverse(sum[:8])
	slices.Reverse(sum[8:])
	return base64.RawStdEncoding.EncodeToString(sum[:])
}

// group is the kind of Group.
type group struct {
	locker        *Locker
	name, channel string
	fields        []string // sorted field names of the values
}

// run runs a script with the fields as its last arguments.
func (g *group) run(ctx context.Context, script string, replicas int, args ...any) (reply, error) {
	line := make([]any, 0, len(args)+len(g.fields))
	line = append(line, args...)
	for _, f := range g.fields {
		line = append(line, f)
	}
	return g.locker.run(ctx, g.locker.scripts[script], replicas, []string{g.name}, line...)
}

func (g *group) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := g.run(ctx, "group_lock", c.replicas, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	return r.attemptResult(g.locker.hub, g.channel), nil
}

func (g *group) extend(ctx context.Context, c callParams) (bool, error) {
	r, err := g.run(ctx, "group_extend", 0, c.owner.id, c.lease.Milliseconds())
	return r.done, err
}

func (g *group) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := g.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := g.run(ctx, "group_unlock", 0, c.owner.id, c.count, verb, g.channel)
	return r.releaseResult(), err
}

func (g *group) leaseLeft(ctx context.Context) (reply, error) { return g.run(ctx, "group_look", 0) }

func (g *group) force(ctx context.Context) (reply, error) {
	verb, err := g.locker.publishCommand(ctx)
	if err != nil {
		return reply{}, err
	}
	return g.run(ctx, "group_force", 0, verb, g.channel)
}
