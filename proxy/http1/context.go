package http1

import (
	"context"
	"sync"
	"time"
)

// A Context is the context of a request: done when its client has left. It costs
// nothing before somebody waits for that.
type Context struct {
	Exchange *Exchange // of the request

	mu         sync.Mutex // guards what follows
	canceled   bool
	done       chan struct{} // nil: nobody has asked
	afterFuncs map[*func()]struct{}
}

// Deadline implements context.Context: there is none.
func (*Context) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context: there is none.
func (*Context) Value(any) any { return nil }

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.canceled {
			close(c.done)
		} else {
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

// Observed reports whether somebody has waited for c to be done, or has heard that it is:
// then c may not be used for another request.
func (c *Context) Observed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.canceled || c.done != nil || c.afterFuncs != nil
}

// AfterFunc spares contexts that are made from it a goroutine each.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
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

// Abort implements Aborter: the client has left.
func (c *Context) Abort() {
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
