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

	mu    sync.Mutex // guards what follows
	gone  bool
	done  chan struct{} // nil: nobody has asked
	after map[*func()]struct{}
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
		if c.gone {
			close(c.done)
		} else {
			c.Exchange.Watch(c)
		}
	}
	return c.done
}

// Err implements context.Context.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return context.Canceled
	}
	return nil
}

// Asked reports whether somebody has waited for c to be done, or has heard that it is:
// then c may not be used for another request.
func (c *Context) Asked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone || c.done != nil || c.after != nil
}

// AfterFunc spares contexts that are made from it a goroutine each.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		go f()
		return func() bool { return false }
	}
	if c.after == nil {
		c.after = map[*func()]struct{}{}
	}
	c.after[&f] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waits := c.after[&f]
		delete(c.after, &f)
		return waits
	}
}

// Abort implements Aborter: the client has left.
func (c *Context) Abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	if c.done != nil {
		close(c.done)
	}
	for f := range c.after {
		go (*f)()
	}
	c.after = nil
}
