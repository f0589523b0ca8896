package lock

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A Hold is a held lock, from the acquisition to Unlock. It does not belong to a goroutine.
// All methods are safe for concurrent use.
type Hold struct {
	session *session
	ctx     context.Context
	cancel  context.CancelCauseFunc

	mu    sync.Mutex // guards what follows; never held over I/O
	also  []context.CancelCauseFunc
	cause error // nil while it is held

	unlock sync.Once
	result error // of unlock
}

// watched is a context that compares the deadline of its session with the clock: Err does
// not depend on a timer, which a suspended or starved process could not run.
type watched struct {
	context.Context
	session *session
}

func (w watched) Err() error {
	w.session.check()
	return w.Context.Err()
}

// addLocked adds a hold, whose context has the values of ctx.
func (s *session) addLocked(ctx context.Context) *Hold {
	h := &Hold{session: s}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	h.ctx, h.cancel = watched{inner, s}, cancel
	s.holds[h] = struct{}{}
	return h
}

// endLocked ends h's contexts; it is called with the session's mutex held.
func (h *Hold) endLocked(cause error) {
	delete(h.session.holds, h)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause = cause
	h.cancel(cause)
	for _, cancel := range h.also {
		cancel(cause)
	}
}

// ended returns why h has ended, or nil.
func (h *Hold) ended() error {
	h.session.check()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// Context returns a context that is canceled when the lock must no longer be relied on:
// with the cause ErrLost if a renewal was refused, or if the lease, counted from before it
// was requested, is over; with ErrReleased by Unlock; with ErrClosed if the Locker was
// closed. It has the values of the acquiring context, but not its cancellation or deadline.
// Its Err checks the clock, so that a process that was suspended notices the loss before it
// does anything else.
func (h *Hold) Context() context.Context { return h.ctx }

// bind derives from ctx a context that is also canceled when h ends. The returned function
// releases its resources.
func (h *Hold) bind(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.also = append(h.also, cancel)
	if h.cause != nil {
		cancel(h.cause)
	}
	return watched{inner, h.session}, cancel
}

// Owner returns the owner for which the lock is held.
func (h *Hold) Owner() Owner { return h.session.claim.owner }

// Token returns the fencing token of a fenced lock: larger than that of every earlier hold.
// All holds of one owner have the same; other kinds of locks return 0.
func (h *Hold) Token() int64 { return h.session.token }

// Deadline returns the time until which the lock may be relied on unless it is renewed. It
// has a monotonic reading.
func (h *Hold) Deadline() time.Time {
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	return h.session.deadline
}

// Extend extends the lease to at least d from now; it never shortens it. It returns ErrLost
// if the lock is no longer held, ErrNotHeld after Unlock.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	if d < MinLease {
		return fmt.Errorf("%w: %v is below %v", ErrBadLease, d, MinLease)
	}
	s := h.session
	return s.call(ctx, h, "extend", func(ctx context.Context) (bool, error) {
		c := s.claim
		c.lease = d
		sent := time.Now()
		held, err := s.lock.kind.extend(ctx, c)
		if held && err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.prolongLocked(sent, d)
		}
		return held, err
	})
}

// Reenter adds a hold for the same owner: the lock is released when all holds are unlocked,
// in any order. It returns ErrReentrant for kinds that are not reentrant, ErrLost if the
// lock is no longer held, ErrNotHeld after Unlock.
func (h *Hold) Reenter(ctx context.Context) (*Hold, error) {
	return h.session.reenter(ctx, h, h.session.claim.lease)
}

// Unlock ends the hold; the last hold of an owner releases the lock and notifies waiters.
// The context of the hold is canceled before Redis is called.
//
// It works after ctx has ended, with its own timeout: at most two call timeouts, and one
// more if a renewal is in progress. Further calls return the same result. ErrLost reports
// that the lock had been lost before; its current holder is not affected. With any other
// error Redis did not reply: the release is repeated in the background, and the lease ends
// in any case.
func (h *Hold) Unlock(ctx context.Context) error {
	h.unlock.Do(func() { h.result = h.session.unlock(ctx, h) })
	return h.result
}
