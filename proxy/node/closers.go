package node

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// closeTimeout is how long one part of a node may take to close, unless it says
// otherwise.
const closeTimeout = 10 * time.Second

// errCloseTimeout reports that a part of a node has not closed in its time.
var errCloseTimeout = errors.New("not closed in time")

// A closer ends one part of a node.
type closer struct {
	name   string
	within time.Duration
	close  func(ctx context.Context) error
}

// closers end what was begun, in the opposite order: what was begun last may use all
// that was begun before it until it has ended. The zero value is ready for use. It
// belongs to one goroutine.
type closers struct{ stack []closer }

// push adds a part that has begun. close may take closeTimeout, and its context ends
// then.
func (c *closers) push(name string, close func(ctx context.Context) error) {
	c.pushWithin(name, closeTimeout, close)
}

// pushWithin is push for a part that may take so long.
func (c *closers) pushWithin(name string, within time.Duration, close func(ctx context.Context) error) {
	c.stack = append(c.stack, closer{name, within, close})
}

// close closes all parts, the last one first, and returns their errors. A part that
// does not close in its time is left behind, so that it holds up nothing else; it is
// an errCloseTimeout with the part's name. After close the stack is empty.
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
	case err := <-closed: // at the same moment
		return err
	default:
		return fmt.Errorf("close %s: %w (%v)", c.name, errCloseTimeout, c.within)
	}
}
