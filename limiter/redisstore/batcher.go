package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxClaims of many requests travel in one script call, so that Redis does
	// nothing else for about half a millisecond at most.
	maxClaims = 128
	// maxQueue calls may wait in a lane.
	maxQueue = 8192
)

// errBusy says that too many requests wait for Redis already.
var errBusy = errors.New("too many requests wait for redis")

// A batcher carries calls to one Redis. Up to flights script calls are under way at
// a time; what arrives meanwhile travels together in the next. Nothing waits for
// company: an idle batcher sends at once.
type batcher struct {
	store       *Store
	maxInFlight int

	mu       sync.Mutex // guards what follows; never held over I/O
	queue    []*call
	inFlight int
	closed   bool
	wg       sync.WaitGroup // of the flights
}

// do sends c and waits for its answer, for no longer than ctx and the store's
// timeout allow. What has not been sent by then never is. In an idle lane the
// caller sends its request itself; then a ctx that is cancelled, rather than over,
// is noticed when Redis answers.
func (l *batcher) do(ctx context.Context, c *call) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	alone, err := l.join(c)
	if err != nil {
		return err
	}
	if alone {
		return l.solo(ctx, c)
	}
	timer := time.NewTimer(l.store.timeout)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return c.abandoned(context.Cause(ctx))
	case <-timer.C:
		return c.abandoned(context.DeadlineExceeded)
	}
}

// solo is a flight of one. What came meanwhile flies next, without the caller.
func (l *batcher) solo(ctx context.Context, c *call) error {
	f := soloFlight(l.store)
	f.takes(c)
	f.send(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.wg.Done()
	if len(l.queue) > 0 {
		l.wg.Go(l.send)
	} else {
		l.inFlight--
	}
	return c.err
}

// abandoned is the error of a caller that leaves, unless the answer is there.
func (c *call) abandoned(err error) error {
	select {
	case <-c.done:
		return c.err
	default:
	}
	if c.leave() {
		return fmt.Errorf("%w: not sent", err)
	}
	return err
}

// join puts c into the queue, or tells the caller to send it: there may be one
// more flight, and nobody else waits.
func (l *batcher) join(c *call) (alone bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return false, redis.ErrClosed
	case len(l.queue) >= maxQueue:
		return false, errBusy
	case l.inFlight < l.maxInFlight:
		l.inFlight++
		l.wg.Add(1)
		return true, nil
	}
	l.queue = append(l.queue, c)
	return false, nil
}

// send sends what waits until nothing does.
func (l *batcher) send() {
	for {
		f := l.fill()
		if f == nil {
			return
		}
		f.send(context.Background())
	}
}

// fill takes calls from the front of the queue for one flight; nil ends the
// flight. It stops before a call that asks for a window by another rate than one
// aboard, as happens while a reload is under way: each goes by its own.
func (l *batcher) fill() *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := newBatch(l.store)
	n := 0
	for ; n < len(l.queue); n++ {
		if !f.takes(l.queue[n]) {
			break
		}
	}
	l.queue = l.queue[:copy(l.queue, l.queue[n:])]
	clear(l.queue[len(l.queue):cap(l.queue)])
	if f.claims == 0 && len(l.queue) == 0 {
		l.inFlight--
		return nil
	}
	return f
}

// close lets no more calls in and waits for those under way.
func (l *batcher) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.wg.Wait()
}
