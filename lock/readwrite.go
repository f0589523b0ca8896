package lock

import (
	"context"
	"fmt"
	"strconv"
)

// A ReadWrite is a readers-writer lock, held by any number of readers or by one writer. It
// is Redisson's RReadWriteLock.
//
// Read and Write return separate locks. A writer may also acquire the read lock for the
// same owner ([WithOwner]) and then unlock the write lock: this downgrades the lock without
// another writer in between. The other way round would be a deadlock, and returns
// ErrReentrant.
type ReadWrite struct {
	read, write *Lock
}

// ReadWrite returns the readers-writer lock with this name.
func (l *Locker) ReadWrite(name string) *ReadWrite {
	k := &readwrite{locker: l, name: name, channel: prefixed("redisson_rwlock", name)}
	k.holds = name // prefix of the keys of single read holds
	if !tagged(name) {
		k.holds = "{" + name + "}"
	}
	read := &reader{k, l.scripts["read_lock"], l.scripts["read_unlock"], l.scripts["read_extend"]}
	write := &writer{k, l.scripts["write_lock"], l.scripts["write_unlock"], l.scripts["write_extend"]}
	rw := &ReadWrite{
		read:  l.newLock(name, read, traits{enters: true}),
		write: l.newLock(name, write, traits{exclusive: true, enters: true}),
	}
	rw.read.role, rw.write.role = "read ", "write "
	return rw
}

// Read returns the lock for readers.
func (rw *ReadWrite) Read() *Lock { return rw.read }

// Write returns the lock for writers.
func (rw *ReadWrite) Write() *Lock { return rw.write }

type readwrite struct {
	locker               *Locker
	name, holds, channel string
}

// hold returns the key of a reader's i-th hold.
func (k *readwrite) hold(o Owner, i int) string {
	return k.holds + ":" + o.id + ":rwlock_timeout:" + strconv.Itoa(i)
}

// reader is the kind of Read.
type reader struct {
	*readwrite
	lock, unlock, prolong *script
}

func (k *reader) attempt(ctx context.Context, c claim) (answer, error) {
	r, err := k.locker.run(ctx, k.lock, c.replicas, []string{k.name, k.hold(c.owner, c.count)}, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return answer{}, err
	}
	return r.answer(k.locker.hub, k.channel), nil
}

func (k *reader) extend(ctx context.Context, c claim) (bool, error) {
	r, err := k.locker.run(ctx, k.prolong, 0, []string{k.name}, c.owner.id, c.lease.Milliseconds(), k.holds)
	return r.done, err
}

func (k *reader) release(ctx context.Context, c claim) (released, error) {
	verb, err := k.locker.publish(ctx)
	if err != nil {
		return released{}, err
	}
	r, err := k.locker.run(ctx, k.unlock, 0, []string{k.name, k.hold(c.owner, 1)}, c.owner.id, c.count, verb, k.channel)
	return r.released(), err
}

// writer is the kind of Write.
type writer struct {
	*readwrite
	lock, unlock, prolong *script
}

func (k *writer) attempt(ctx context.Context, c claim) (answer, error) {
	r, err := k.locker.run(ctx, k.lock, c.replicas, []string{k.name}, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return answer{}, err
	}
	if !r.done && r.n == -3 {
		return answer{}, fmt.Errorf("%w: its reader cannot become its writer", ErrReentrant)
	}
	return r.answer(k.locker.hub, k.channel), nil
}

func (k *writer) extend(ctx context.Context, c claim) (bool, error) {
	r, err := k.locker.run(ctx, k.prolong, 0, []string{k.name}, c.owner.id, c.lease.Milliseconds())
	return r.done, err
}

func (k *writer) release(ctx context.Context, c claim) (released, error) {
	verb, err := k.locker.publish(ctx)
	if err != nil {
		return released{}, err
	}
	r, err := k.locker.run(ctx, k.unlock, 0, []string{k.name}, c.owner.id, c.count, verb, k.channel, k.holds)
	return r.released(), err
}
