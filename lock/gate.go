package lock

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	maxStreak = 16                    // consecutive local hand-overs while others wait
	yieldFor  = 10 * time.Millisecond // pause after that, for other processes
	forget    = time.Second           // a streak ends after this time without use
)

// A gates value lets one goroutine of this process at a time contend for a name, in FIFO
// order, so that a thousand waiters cost Redis as much as one.
type gates struct {
	mu     sync.Mutex // guards what follows; never held over I/O
	byName map[string]*gate
}

type gate struct {
	queue    list.List // of chan struct{}; the first one may contend
	streak   int       // consecutive releases while others waited
	used     time.Time // when the queue became empty
	sweeping bool      // a timer will remove the gate if it is unused
}

// A pass is the right to contend. It is returned once, by leave.
type pass struct {
	gates *gates
	name  string
	place *list.Element
}

// enter waits until this caller may contend. After this process has released the lock
// maxStreak times in a row while others waited, the caller pauses for yieldFor first.
func (g *gates) enter(ctx context.Context, name string) (*pass, error) {
	p, turn := g.join(name)
	select {
	case <-turn:
	case <-ctx.Done():
		p.leave(0)
		return nil, context.Cause(ctx)
	}
	if !g.streakOver(name) {
		return p, nil
	}
	timer := time.NewTimer(yieldFor)
	defer timer.Stop()
	select {
	case <-timer.C:
		return p, nil
	case <-ctx.Done():
		p.leave(0)
		return nil, context.Cause(ctx)
	}
}

// join appends to the queue; turn is closed when the caller is first.
func (g *gates) join(name string) (p *pass, turn chan struct{}) {
	turn = make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	gt := g.byName[name]
	if gt == nil {
		gt = new(gate)
		g.byName[name] = gt
	}
	if gt.queue.Len() == 0 {
		close(turn)
	}
	return &pass{gates: g, name: name, place: gt.queue.PushBack(turn)}, turn
}

// streakOver reports whether the streak has reached its maximum, and starts a new one if
// so.
func (g *gates) streakOver(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	gt := g.byName[name]
	if gt.streak < maxStreak {
		return false
	}
	gt.streak = 0
	return true
}

// leave admits the next caller. notified is the number of listeners that received the
// release: all in other processes, because this one does not listen now.
func (p *pass) leave(notified int64) {
	g := p.gates
	g.mu.Lock()
	defer g.mu.Unlock()
	gt := g.byName[p.name]
	inside := gt.queue.Front() == p.place
	gt.queue.Remove(p.place)
	if !inside {
		return
	}
	if notified > 0 {
		gt.streak++
	} else {
		gt.streak = 0
	}
	switch {
	case gt.queue.Len() > 0:
		close(gt.queue.Front().Value.(chan struct{}))
	case gt.streak == 0:
		delete(g.byName, p.name)
	default:
		gt.used = time.Now()
		g.sweepLocked(p.name, gt)
	}
}

// sweepLocked removes gt if it has not been used for a while: until then it keeps the
// streak of a caller that returns repeatedly.
func (g *gates) sweepLocked(name string, gt *gate) {
	if gt.sweeping {
		return
	}
	gt.sweeping = true
	time.AfterFunc(forget, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		gt.sweeping = false
		switch {
		case g.byName[name] != gt || gt.queue.Len() > 0:
		case time.Since(gt.used) >= forget:
			delete(g.byName, name)
		default:
			g.sweepLocked(name, gt)
		}
	})
}
