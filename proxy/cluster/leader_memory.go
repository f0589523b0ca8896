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
func (s *memoryLeadership) lead(ctx context.Context, work func(context.Context, Term)) error {
	t := Term{Token: 1, Since: time.Now().UTC()}
	s.acquire(t.Since)
	work(ctx, t)
	s.acquire(time.Time{})
	return context.Cause(ctx)
}

func (s *memoryLeadership) acquire(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = since
}

// note implements leadership.
func (s *memoryLeadership) note(_ context.Context, _ Term, r Run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := slices.BinarySearchFunc(s.runs, r.Task, func(r Run, name string) int { return cmp.Compare(r.Task, name) })
	if !found {
		s.runs = slices.Insert(s.runs, i, r)
	}
	s.runs[i] = r
	return nil
}

// current implements leadership.
func (s *memoryLeadership) current(context.Context) (Leadership, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := Leadership{Tasks: append([]Run{}, s.runs...)}
	if !s.since.IsZero() {
		l.Node, l.Since, l.Token = s.node, s.since, 1
	}
	return l, nil
}
