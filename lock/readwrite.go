package lock

import (
	"context"
	"fmt"
	"strconv"
)

// A ReadWrite is a readers-writer lock: it is held by any number of readers or by one
// writer. It is compatible with Redisson's RReadWriteLock.
//
// A writer may also acquire the read lock, with the same owner ([WithOwner]), and then
// unlock the write lock. So it becomes a reader without another writer in between. A
// reader that acquires the write lock would wait for itself; it gets ErrNotReentrant.
type ReadWrite struct {
	read, write *Lock
}

// ReadWrite returns the read-write lock with this name.
func (l *Locker) ReadWrite(name string) *ReadWrite {
	k := &readwrite{locker: l, name: name, channel: prefixedKey("redisson_rwlock", name)}
	k.holdPrefix = name // prefix of the keys of single read holds
	if !hasHashTag(name) {
		k.holdPrefix = "{" + name + "}"
	}
	read := &reader{k, l.scripts["read_lock"], l.scripts["read_unlock"], l.scripts["read_extend"]}
	write := &writer{k, l.scripts["write_lock"], l.scripts["write_unlock"], l.scripts["write_extend"]}
	rw := &ReadWrite{
		read:  l.newLock(name, read, traits{reentrant: true}),
		write: l.newLock(name, write, traits{exclusive: true, reentrant: true}),
	}
	rw.read.namespace, rw.write.namespace = "read ", "write "
	return rw
}

// Read returns the read lock.
func (r *ReadWrite) Read() *Lock { return r.read }

// Write returns the write lock.
func (r *ReadWrite) Write() *Lock { return r.write }

// readwrite is the common part of reader and writer.
type readwrite struct {
	locker                    *Locker
	name, holdPrefix, channel string
}

// holdKey returns the key of a reader's i-th hold.
func (r *readwrite) holdKey(o Owner, i int) string {
	return r.holdPrefix + ":" + o.id + ":rwlock_timeout:" + strconv.Itoa(i)
}

// reader is the kind of Read.
type reader struct {
	*readwrite
	lock, unlock, prolong *script
}

func (k *reader) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := k.locker.run(ctx, k.lock, c.replicas, []string{k.name, k.holdKey(c.owner, c.count)}, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	return r.attemptResult(k.locker.hub, k.channel), nil
}

func (k *reader) extend(ctx context.Context, c callParams) (bool, error) {
	r, err := k.locker.run(ctx, k.prolong, 0, []string{k.name}, c.owner.id, c.lease.Milliseconds(), k.holdPrefix)
	return r.done, err
}

func (k *reader) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := k.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := k.locker.run(ctx, k.unlock, 0, []string{k.name, k.holdKey(c.owner, 1)}, c.owner.id, c.count, verb, k.channel)
	return r.releaseResult(), err
}

// writer is the kind of Write.
type writer struct {
	*readwrite
	lock, unlock, prolong *script
}

func (w *writer) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := w.locker.run(ctx, w.lock, c.replicas, []string{w.name}, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	if !r.done && r.n == -3 {
		return attemptResult{}, fmt.Errorf("%w: a reader cannot acquire the write lock", ErrNotReentrant)
	}
	return r.attemptResult(w.locker.hub, w.channel), nil
}

func (w *writer) extend(ctx context.Context, c callParams) (bool, error) {
	r, err := w.locker.run(ctx, w.prolong, 0, []string{w.name}, c.owner.id, c.lease.Milliseconds())
	return r.done, err
}

func (w *writer) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := w.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := w.locker.run(ctx, w.unlock, 0, []string{w.name}, c.owner.id, c.count, verb, w.channel, w.holdPrefix)
	return r.releaseResult(), err
}
