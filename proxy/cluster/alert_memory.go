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
func (b *memoryAlerts) raise(_ context.Context, _ Term, a Alert, repeat time.Duration) (raised, full bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(b.raised, func(_ string, until time.Time) bool { return !now.Before(until) })
	if _, known := b.raised[a.subject()]; known {
		return false, false, nil
	}
	b.raised[a.subject()] = now.Add(repeat)
	if len(b.queue) >= maxQueuedAlerts {
		return false, true, nil
	}
	b.queue = append(b.queue, a)
	return true, false, nil
}

// next implements alertQueue.
func (b *memoryAlerts) next(context.Context) (queuedAlert, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return queuedAlert{}, false, nil
	}
	return queuedAlert{Alert: b.queue[0]}, true, nil
}

// done implements alertQueue.
func (b *memoryAlerts) done(context.Context, Term, queuedAlert) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = b.queue[1:] // only the task removes any
	return nil
}
