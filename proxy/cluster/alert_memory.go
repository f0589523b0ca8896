package cluster

import (
	"context"
	"maps"
	"sync"
	"time"
)

// memoryAlerts is the alert queue of a single process.
type memoryAlerts struct {
	mu     sync.Mutex           // guards what follows
	raised map[string]time.Time // by subject: time until which it is not raised again
	queue  []Alert
}

func newMemoryAlerts() *memoryAlerts { return &memoryAlerts{raised: map[string]time.Time{}} }

// raise implements alertQueue.
func (m *memoryAlerts) raise(_ context.Context, _ Term, a Alert, repeat time.Duration) (raised, full bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(m.raised, func(_ string, until time.Time) bool { return !now.Before(until) })
	if _, known := m.raised[a.subject()]; known {
		return false, false, nil
	}
	m.raised[a.subject()] = now.Add(repeat)
	if len(m.queue) >= maxQueuedAlerts {
		return false, true, nil
	}
	m.queue = append(m.queue, a)
	return true, false, nil
}

// next implements alertQueue.
func (m *memoryAlerts) next(context.Context) (queuedAlert, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) == 0 {
		return queuedAlert{}, false, nil
	}
	return queuedAlert{Alert: m.queue[0]}, true, nil
}

// done implements alertQueue.
func (m *memoryAlerts) done(context.Context, Term, queuedAlert) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue = m.queue[1:] // only the task removes any
	return nil
}
