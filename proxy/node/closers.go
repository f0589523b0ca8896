package node

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// closeTimeout is the default timeout for closing one part of a node.
const closeTimeout = 10 * time.Second

// errCloseTimeout reports a part of a node that did not close in time.
var errCloseTimeout = errors.New("not closed in time")

// A closer closes one part of a node.
type closer struct {
	name   string
	within time.Duration
	close  func(ctx context.Context) error
}

// closers closes parts in reverse order of their start, so that each may use earlier ones
// until it has ended. The zero value is ready for use. It must not be used concurrently.
type closers struct{ stack []closer }

// push adds a started part. The context of close ends after closeTimeout.
func (c *closers) push(name string, close func(ctx context.Context) error) {
	c.pushWithin(name, closeTimeout, close)
}

// pushWithin is push with another timeout.
func (c *closers) pushWithin(name string, within time.Duration, close func(ctx context.Context) error) {
	c.stack = append(c.stack, closer{name, within, close})
}

// close closes all parts, the last one first, and returns their errors. A part that does
// not close in time is abandoned, and reported as an errCloseTimeout with its name.
// Afterwards the stack is empty.
func (c *closers) close(ctx context.Context) error {
	var errs []error
	for len(c.stack) > 0 {
		last := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		errs = append(errs, last.run(ctx))
	}
	return errors.Join(errs...)
}

// run closes one part.
func (c closer) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- c.close(ctx) }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-closed: // closed at the same moment
		return err
	default:
		return fmt.Errorf("close %s: %w (%v)", c.name, errCloseTimeout, c.within)
	}
}
