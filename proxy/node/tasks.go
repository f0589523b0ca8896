package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// tasks is a group of named goroutines that are stopped together.
type tasks struct {
	ctx    context.Context // context of all tasks
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	running map[string]bool
}

func newTasks() *tasks {
	ctx, cancel := context.WithCancel(context.Background())
	return &tasks{ctx: ctx, cancel: cancel, running: map[string]bool{}}
}

// start runs f in a goroutine. f must return when its context is done.
func (t *tasks) start(name string, f func(ctx context.Context)) {
	t.markRunning(name)
	t.wg.Go(func() {
		defer t.markEnded(name)
		f(t.ctx)
	})
}

func (t *tasks) markRunning(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[name] = true
}

func (t *tasks) markEnded(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, name)
}

// stop cancels the tasks' context, and does not wait.
func (t *tasks) stop(context.Context) error {
	t.cancel()
	return nil
}

// wait waits for all tasks. If ctx is done before, it returns an error with the names of those
// still running.
func (t *tasks) wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		t.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.running) == 0 { // they ended at the same moment
		return nil
	}
	return fmt.Errorf("still running: %s: %w", strings.Join(slices.Sorted(maps.Keys(t.running)), ", "), errCloseTimeout)
}
