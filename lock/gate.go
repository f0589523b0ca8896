package lock

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	maxStreak = 16                    // local hand-overs in a row while others wait
	yieldFor  = 10 * time.Millisecond // the head start that others get then
	forget    = time.Second           // a streak without use is over after this
)

// A gates value lets one goroutine of this process at a time contend for a name, first
// come, first served: a thousand waiters cost Redis what one costs.
type gates struct {
	mu     sync.Mutex // guards what follows; never held over I/O
	byName map[string]*gate
}

type gate struct {
	queue    list.List // of chan struct{}; the front one is inside
	streak   int       // times in a row that others waited when the lock was given back
	used     time.Time // when the queue became empty
	sweeping bool      // a timer will look whether the gate can go
}

// A pass is the right to contend. It is given back by leave, once.
type pass struct {
	gates *gates
	name  string
	place *list.Element
}

// enter waits for this caller's turn. When the lock was given back by this
// process maxStreak times in a row while others waited, the caller first stands
// back for yieldFor.
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

// join takes a place in the queue; turn is closed when it is the front one.
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

// streakOver reports whether the streak is over, and starts a new one if so.
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

// leave lets the next one in. notified is how many listeners heard that the lock was
// given back: all of them in other processes, because here nobody listens.
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

// sweepLocked removes gt when it was not used for a while: until then it keeps
// the streak of a caller that comes back again and again.
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
