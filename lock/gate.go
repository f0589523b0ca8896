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
)

// A gates value lets one goroutine of this process at a time contend for a name, first
// come, first served: a thousand waiters cost Redis what one costs.
type gates struct {
	mu     sync.Mutex // guards what follows; never held over I/O
	byName map[string]*gate
}

type gate struct {
	queue  list.List // of chan struct{}; the front one is inside
	streak int       // times in a row that the lock stayed in this process although others waited
}

// A pass is the right to contend. It is given back by leave, once.
type pass struct {
	gates *gates
	name  string
	place *list.Element
}

// enter waits for this caller's turn. When the turn comes from a neighbour for
// the maxStreak-th time although other processes wait, the caller first stands
// back for yieldFor.
func (g *gates) enter(ctx context.Context, name string) (*pass, error) {
	p, turn := g.join(name)
	select {
	case <-turn:
	case <-ctx.Done():
		p.leave(false)
		return nil, context.Cause(ctx)
	}
	if !g.spent(name) {
		return p, nil
	}
	timer := time.NewTimer(yieldFor)
	defer timer.Stop()
	select {
	case <-timer.C:
		return p, nil
	case <-ctx.Done():
		p.leave(false)
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

// spent reports whether the streak is over, and starts a new one if so.
func (g *gates) spent(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	gt := g.byName[name]
	if gt.streak < maxStreak {
		return false
	}
	gt.streak = 0
	return true
}

// leave lets the next one in. Others says that other processes wait for the
// lock that was just given back.
func (p *pass) leave(others bool) {
	g := p.gates
	g.mu.Lock()
	defer g.mu.Unlock()
	gt := g.byName[p.name]
	inside := gt.queue.Front() == p.place
	gt.queue.Remove(p.place)
	if gt.queue.Len() == 0 {
		delete(g.byName, p.name)
		return
	}
	if !inside {
		return
	}
	if others {
		gt.streak++
	} else {
		gt.streak = 0
	}
	close(gt.queue.Front().Value.(chan struct{}))
}
