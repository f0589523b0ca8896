package lock

import (
	"context"
	"errors"
	"time"
)

// retryUndo gives back what c may hold after a call whose outcome is unknown. The
// call may even be executed after the first undo, because it was sent over
// another connection: so undo is tried until it finds something. What it does
// not find then ends with its lease.
func (l *Locker) retryUndo(k kind, c callParams) {
	l.retry(func() bool {
		p, err := l.releaseAll(k, c)
		return err == nil && p.held
	})
}

// retryRelease gives back what c is known to have: a hold that has ended or a place
// in a queue. One call that is answered is enough.
func (l *Locker) retryRelease(k kind, c callParams) {
	l.retry(func() bool {
		_, err := l.releaseAll(k, c)
		return err == nil
	})
}

// retry calls done until it says yes, five times over some 4 s. A Locker that
// is closing does not pause, and calls once more.
func (l *Locker) retry(done func() bool) {
	for _, pause := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second} {
		closing := l.pause(pause)
		if done() || closing {
			return
		}
	}
}

// releaseInBackground gives back in the background what owner may have. Nothing new is asked
// for in the name of owner meanwhile ([Locker.awaitReleases]): work could not tell it
// from the old. The caller has begun, so that Close waits for work.
func (l *Locker) releaseInBackground(owner Owner, work func()) {
	done := make(chan struct{})
	l.mu.Lock()
	before := l.pendingReleases[owner]
	l.pendingReleases[owner] = done
	l.mu.Unlock()
	l.running.Go(func() {
		work()
		if before != nil {
			<-before
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.pendingReleases[owner] == done {
			delete(l.pendingReleases, owner)
		}
		close(done)
	})
}

// awaitReleases waits until nothing is being given back in the name of owner.
func (l *Locker) awaitReleases(ctx context.Context, owner Owner) error {
	for {
		l.mu.Lock()
		done := l.pendingReleases[owner]
		l.mu.Unlock()
		if done == nil {
			return nil
		}
		select {
		case <-done:
		case <-ctx.Done():
			return errors.Join(ErrNotAcquired, context.Cause(ctx))
		}
	}
}

// releaseAll is one call of release that leaves nothing to c.
func (l *Locker) releaseAll(k kind, c callParams) (releaseResult, error) {
	ctx, cancel := l.callContext(context.Background())
	defer cancel()
	c.count = 0
	return k.release(ctx, c)
}

// pause waits for d, or until the Locker is closing, which it reports.
func (l *Locker) pause(d time.Duration) (closing bool) {
	sleep[struct{}](l.ctx, nil, d)
	return l.ctx.Err() != nil
}
