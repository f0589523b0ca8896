package http1

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Context is the context of a request. It is canceled when the client is gone.
// Monitoring the client begins with the first call of Done, so that a Context that is
// only passed on costs nothing.
type Context struct {
	Exchange *Exchange // of the request; nil if its owner notices by itself that the client is gone

	observed atomic.Bool // Done or AfterFunc was called, or the context was canceled

	mu         sync.Mutex    // guards what follows
	canceled   bool          // the client is gone
	done       chan struct{} // nil until Done is called
	afterFuncs map[*func()]struct{}
}

// Deadline implements context.Context. There is no deadline.
func (*Context) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context. There are no values.
func (*Context) Value(any) any { return nil }

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	c.observed.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.canceled {
			close(c.done)
		} else if c.Exchange != nil {
			c.Exchange.MonitorClient(c)
		}
	}
	return c.done
}

// Err implements context.Context.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.canceled {
		return context.Canceled
	}
	return nil
}

// Observed reports whether Done or AfterFunc was called, or the context was canceled.
// Such a context must not be reused for another request.
func (c *Context) Observed() bool { return c.observed.Load() }

// AfterFunc registers f to be called after c is canceled. The context package uses it,
// so that contexts derived from c need no goroutine.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	c.observed.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.canceled {
		go f()
		return func() bool { return false }
	}
	if c.afterFuncs == nil {
		c.afterFuncs = map[*func()]struct{}{}
	}
	c.afterFuncs[&f] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waits := c.afterFuncs[&f]
		delete(c.afterFuncs, &f)
		return waits
	}
}

// Abort implements Aborter. It cancels c because the client is gone.
func (c *Context) Abort() {
	c.observed.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.canceled = true
	if c.done != nil {
		close(c.done)
	}
	for f := range c.afterFuncs {
		go (*f)()
	}
	c.afterFuncs = nil
}
