package cluster

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// memoryLeadership is the leadership of a single process, which is always the leader.
type memoryLeadership struct {
	node string

	mu    sync.Mutex // guards what follows
	since time.Time  // zero if there is no leader
	runs  []Run      // by name
}

func newMemoryLeadership(node string) *memoryLeadership { return &memoryLeadership{node: node} }

// lead implements leadership.
func (m *memoryLeadership) lead(ctx context.Context, work func(context.Context, Term)) error {
	t := Term{Token: 1, Since: time.Now().UTC()}
	m.acquire(t.Since)
	work(ctx, t)
	m.acquire(time.Time{})
	return context.Cause(ctx)
}

func (m *memoryLeadership) acquire(since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = since
}

// note implements leadership.
func (m *memoryLeadership) note(_ context.Context, _ Term, r Run) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, found := slices.BinarySearchFunc(m.runs, r.Task, func(r Run, name string) int { return cmp.Compare(r.Task, name) })
	if !found {
		m.runs = slices.Insert(m.runs, i, r)
	}
	m.runs[i] = r
	return nil
}

// current implements leadership.
func (m *memoryLeadership) current(context.Context) (Leadership, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := Leadership{Tasks: append([]Run{}, m.runs...)}
	if !m.since.IsZero() {
		l.Node, l.Since, l.Token = m.node, m.since, 1
	}
	return l, nil
}
