package node

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// closeTimeout is the default time limit for closing one part of a node.
const closeTimeout = 10 * time.Second

// errCloseTimeout reports that a part of a node did not close within its time limit.
var errCloseTimeout = errors.New("not closed in time")

// A closer closes one part of a node.
type closer struct {
	name    string
	timeout time.Duration
	close   func(ctx context.Context) error
}

// closers is a stack of parts that were started. They are closed in reverse order, so that a part
// can use all earlier ones until it has ended. The zero value is ready to use. It is used by one
// goroutine.
type closers struct{ stack []closer }

// push adds a part that was started. The context of close ends after closeTimeout.
func (c *closers) push(name string, close func(ctx context.Context) error) {
	c.pushWithin(name, closeTimeout, close)
}

// pushWithin is push with a time limit.
func (c *closers) pushWithin(name string, within time.Duration, close func(ctx context.Context) error) {
	c.stack = append(c.stack, closer{name, within, close})
}

// close closes all parts in reverse order and returns their errors. A part that exceeds its time
// limit is abandoned, so that it does not block the others; its error is errCloseTimeout with its
// name. The stack is empty afterwards.
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
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
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
		return fmt.Errorf("close %s: %w (%v)", c.name, errCloseTimeout, c.timeout)
	}
}
