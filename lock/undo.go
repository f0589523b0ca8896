package lock

import (
	"context"
	"errors"
	"time"
)

// undo releases what c may hold after a call with unknown outcome. The call may be executed
// even after the first undo, because it was sent over another connection: so undo is
// repeated until it finds a hold. Otherwise the hold ends with its lease.
func (l *Locker) undo(k kind, c claim) {
	l.repeat(func() bool {
		p, err := l.giveBack(k, c)
		return err == nil && p.held
	})
}

// withdraw releases what c is known to have: a hold that has ended, or a place in a queue.
// One call with a reply is enough.
func (l *Locker) withdraw(k kind, c claim) {
	l.repeat(func() bool {
		_, err := l.giveBack(k, c)
		return err == nil
	})
}

// repeat calls done until it returns true, five times within about 4 s. If the Locker is
// closing, it does not pause, and calls done once more.
func (l *Locker) repeat(done func() bool) {
	for _, pause := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second} {
		closing := l.pause(pause)
		if done() || closing {
			return
		}
	}
}

// settle releases in the background what owner may hold. Meanwhile no acquisition for owner
// is sent ([Locker.settled]), because work could not distinguish it. The caller has called
// begin, so that Close waits for work.
func (l *Locker) settle(owner Owner, work func()) {
	done := make(chan struct{})
	l.mu.Lock()
	before := l.unsettled[owner]
	l.unsettled[owner] = done
	l.mu.Unlock()
	l.busy.Go(func() {
		work()
		if before != nil {
			<-before
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.unsettled[owner] == done {
			delete(l.unsettled, owner)
		}
		close(done)
	})
}

// settled waits until no release for owner is in progress.
func (l *Locker) settled(ctx context.Context, owner Owner) error {
	for {
		l.mu.Lock()
		done := l.unsettled[owner]
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

// giveBack makes one call of release with count 0.
func (l *Locker) giveBack(k kind, c claim) (released, error) {
	ctx, cancel := l.bounded(context.Background())
	defer cancel()
	c.count = 0
	return k.release(ctx, c)
}

// pause waits for d, or until the Locker is closing, which it reports.
func (l *Locker) pause(d time.Duration) (closing bool) {
	sleep[struct{}](l.life, nil, d)
	return l.life.Err() != nil
}
