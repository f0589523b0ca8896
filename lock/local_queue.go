package lock

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	maxStreak  = 16                    // consecutive local handovers while other processes wait
	yieldDelay = 10 * time.Millisecond // delay after a streak, which lets other processes go first
	streakTTL  = time.Second           // time without use after which a streak is reset
)

// localQueues has a first-in, first-out queue for each name, so that one goroutine of
// this process at a time contends for it. A thousand waiters cause Redis the load of one.
type localQueues struct {
	mu     sync.Mutex // guards the fields below and the queues; never held during I/O
	byName map[string]*localQueue
}

// A localQueue is the queue of one name.
type localQueue struct {
	waiters list.List   // of chan struct{}; the front one contends
	streak  int         // consecutive releases while other processes waited
	expiry  *time.Timer // removes the queue if it stays empty; nil before it was empty
}

// A ticket is a position in a localQueue. leave must be called once.
type ticket struct {
	queues  *localQueues
	name    string
	element *list.Element
}

// wait waits until the caller is at the front of the queue. If this process has released
// the lock maxStreak times in a row while other processes waited, it then also waits for
// yieldDelay.
func (l *localQueues) wait(ctx context.Context, name string) (*ticket, error) {
	p, turn := l.join(name)
	select {
	case <-turn:
	case <-ctx.Done():
		p.leave(0)
		return nil, context.Cause(ctx)
	}
	if l.resetStreak(name) {
		if sleep[struct{}](ctx, nil, yieldDelay); ctx.Err() != nil {
			p.leave(0)
			return nil, context.Cause(ctx)
		}
	}
	return p, nil
}

// join appends the caller to the queue; turn is closed when it is at the front.
func (l *localQueues) join(name string) (p *ticket, turn chan struct{}) {
	turn = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	gt := l.byName[name]
	if gt == nil {
		gt = new(localQueue)
		l.byName[name] = gt
	}
	if gt.waiters.Len() == 0 {
		close(turn)
	}
	if gt.expiry != nil {
		gt.expiry.Stop()
	}
	return &ticket{queues: l, name: name, element: gt.waiters.PushBack(turn)}, turn
}

// resetStreak resets the streak if it has reached maxStreak, and reports whether it has.
func (l *localQueues) resetStreak(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	gt := l.byName[name]
	if gt.streak < maxStreak {
		return false
	}
	gt.streak = 0
	return true
}

// leave removes t from the queue and admits the next waiter. notified is the number of
// subscribers that received the release. They are all in other processes, because waiters
// of this one do not subscribe meanwhile.
func (t *ticket) leave(notified int64) {
	g := t.queues
	g.mu.Lock()
	defer g.mu.Unlock()
	gt := g.byName[t.name]
	isFirst := gt.waiters.Front() == t.element
	gt.waiters.Remove(t.element)
	if !isFirst {
		return
	}
	if notified > 0 {
		gt.streak++
	} else {
		gt.streak = 0
	}
	switch {
	case gt.waiters.Len() > 0:
		close(gt.waiters.Front().Value.(chan struct{}))
	case gt.streak == 0:
		delete(g.byName, t.name)
	default: // for streakTTL it keeps the streak of a caller that acquires the lock again and again
		gt.expiry = time.AfterFunc(streakTTL, func() { g.removeEmpty(t.name, gt) })
	}
}

// removeEmpty removes gt if it is empty.
func (l *localQueues) removeEmpty(name string, gt *localQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName[name] == gt && gt.waiters.Len() == 0 {
		delete(l.byName, name)
	}
}
