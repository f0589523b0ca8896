package lock

import (
	"context"
	"errors"
	"time"
)

// retryUndo releases what c may hold after a call with an unknown outcome. The call may
// even be executed after the first release, because it was sent over another connection.
// So the release is repeated until it finds something; what it does not find expires with
// its lease.
func (l *Locker) retryUndo(k lockKind, c callParams) {
	l.retry(func() bool {
		p, err := l.releaseAll(k, c)
		return err == nil && p.held
	})
}

// retryRelease releases what c is known to have: a hold that has ended, or a position in
// a queue. It is repeated until a call succeeds.
func (l *Locker) retryRelease(k lockKind, c callParams) {
	l.retry(func() bool {
		_, err := l.releaseAll(k, c)
		return err == nil
	})
}

// retry calls done until it returns true, at most five times in about 4 s. If the Locker
// is closing, it does not pause and calls done at most once more.
func (l *Locker) retry(done func() bool) {
	for _, pause := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second} {
		closing := l.pause(pause)
		if done() || closing {
			return
		}
	}
}

// releaseInBackground runs work, which releases what owner may hold, in the background.
// New acquisitions of the owner wait until it is done (awaitReleases), because work could
// not distinguish them from old ones. The caller must have called beginCall, so that
// Close waits for work.
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

// awaitReleases waits until no background release of owner is pending.
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

// releaseAll calls release once, with a count of 0.
func (l *Locker) releaseAll(k lockKind, c callParams) (releaseResult, error) {
	ctx, cancel := l.callContext(context.Background())
	defer cancel()
	c.count = 0
	return k.release(ctx, c)
}

// pause waits for d or until the Locker is closing, and reports whether it is.
func (l *Locker) pause(d time.Duration) (closing bool) {
	sleep[struct{}](l.ctx, nil, d)
	return l.ctx.Err() != nil
}
