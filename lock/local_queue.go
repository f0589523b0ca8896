package lock

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	maxStreak  = 16                    // local hand-overs in a row while others wait
	yieldDelay = 10 * time.Millisecond // the head start that others get then
	streakTTL  = time.Second           // a streak without use is over after this
)

// A localQueues value lets one goroutine of this process at a time contend for a name, first
// come, first served: a thousand waiters cost Redis what one costs.
type localQueues struct {
	mu     sync.Mutex // guards what follows; never held over I/O
	byName map[string]*localQueue
}

type localQueue struct {
	waiters      list.List // of chan struct{}; the front one is inside
	streak       int       // times in a row that others waited when the lock was given back
	emptiedAt    time.Time // when the queue became empty
	sweepPending bool      // a timer will look whether the gate can go
}

// A ticket is the right to contend. It is given back by leave, once.
type ticket struct {
	queues  *localQueues
	name    string
	element *list.Element
}

// wait waits for this caller's turn. When the lock was given back by this
// process maxStreak times in a row while others waited, the caller first stands
// back for yieldDelay.
func (g *localQueues) wait(ctx context.Context, name string) (*ticket, error) {
	p, turn := g.join(name)
	select {
	case <-turn:
	case <-ctx.Done():
		p.leave(0)
		return nil, context.Cause(ctx)
	}
	if !g.resetStreak(name) {
		return p, nil
	}
	timer := time.NewTimer(yieldDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return p, nil
	case <-ctx.Done():
		p.leave(0)
		return nil, context.Cause(ctx)
	}
}

// join takes a place in the queue; turn is closed when it is the front one.
func (g *localQueues) join(name string) (p *ticket, turn chan struct{}) {
	turn = make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	gt := g.byName[name]
	if gt == nil {
		gt = new(localQueue)
		g.byName[name] = gt
	}
	if gt.waiters.Len() == 0 {
		close(turn)
	}
	return &ticket{queues: g, name: name, element: gt.waiters.PushBack(turn)}, turn
}

// resetStreak reports whether the streak is over, and starts a new one if so.
func (g *localQueues) resetStreak(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	gt := g.byName[name]
	if gt.streak < maxStreak {
		return false
	}
	gt.streak = 0
	return true
}

// leave lets the next one in. notified is how many listeners heard that the lock was
// given back: all of them in other processes, because here nobody listens.
func (p *ticket) leave(notified int64) {
	g := p.queues
	g.mu.Lock()
	defer g.mu.Unlock()
	gt := g.byName[p.name]
	inside := gt.waiters.Front() == p.element
	gt.waiters.Remove(p.element)
	if !inside {
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
		delete(g.byName, p.name)
	default:
		gt.emptiedAt = time.Now()
		g.sweepLocked(p.name, gt)
	}
}

// sweepLocked removes gt when it was not used for a while: until then it keeps
// the streak of a caller that comes back again and again.
func (g *localQueues) sweepLocked(name string, gt *localQueue) {
	if gt.sweepPending {
		return
	}
	gt.sweepPending = true
	time.AfterFunc(streakTTL, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		gt.sweepPending = false
		switch {
		case g.byName[name] != gt || gt.waiters.Len() > 0:
		case time.Since(gt.emptiedAt) >= streakTTL:
			delete(g.byName, name)
		default:
			g.sweepLocked(name, gt)
		}
	})
}
