package lock

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A Hold is a lock that is held, from the acquisition to Unlock. It belongs to
// whoever has it, not to a goroutine. All its methods are safe for concurrent
// use.
type Hold struct {
	session *session
	ctx     context.Context
	cancel  context.CancelCauseFunc

	mu      sync.Mutex // guards what follows; never held over I/O
	derived []context.CancelCauseFunc
	cause   error // nil while it is held

	unlock sync.Once
	result error // of unlock
}

// holdContext is a context that knows the deadline of its session: Err does not
// have to wait for a timer that a stopped or starved process could not run.
type holdContext struct {
	context.Context
	session *session
}

func (w holdContext) Err() error {
	w.session.endCause()
	return w.Context.Err()
}

// addLocked makes one more hold, whose context has the values of ctx.
func (s *session) addLocked(ctx context.Context) *Hold {
	h := &Hold{session: s}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	h.ctx, h.cancel = holdContext{inner, s}, cancel
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
	for _, cancel := range h.derived {
		cancel(cause)
	}
}

// endCause returns why h has ended, or nil.
func (h *Hold) endCause() error {
	h.session.endCause()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// Context ends when the lock may no longer be relied on: with the cause ErrLost
// when a renewal was refused or the lease, counted from before it was asked
// for, is over; with ErrReleased at Unlock; with ErrClosed when the Locker was
// closed. It carries the values of the acquiring context, but neither its end
// nor its deadline. Its Err compares the clock itself, so that a process that
// was stopped sees the loss before it does anything else.
func (h *Hold) Context() context.Context { return h.ctx }

// deriveContext derives from ctx a context that also ends when h does. The returned
// function frees what that takes.
func (h *Hold) deriveContext(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.derived = append(h.derived, cancel)
	if h.cause != nil {
		cancel(h.cause)
	}
	return holdContext{inner, h.session}, cancel
}

// Owner is in whose name the lock is held.
func (h *Hold) Owner() Owner { return h.session.params.owner }

// Token is the fencing token of a fenced lock: larger than that of every
// earlier hold. It is the same for all holds of one owner at a time, and 0 for
// the other kinds of locks.
func (h *Hold) Token() int64 { return h.session.token }

// Deadline is until when the lock may be relied on unless it is renewed. It has
// a monotonic reading.
func (h *Hold) Deadline() time.Time {
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	return h.session.deadline
}

// Extend makes the lock last at least d from now; it never makes it shorter. It
// returns ErrLost if the lock is not held any more, ErrNotHeld after Unlock.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	if d < MinLease {
		return fmt.Errorf("%w: %v is below %v", ErrInvalidLease, d, MinLease)
	}
	s := h.session
	return s.call(ctx, h, "extend", func(ctx context.Context) (bool, error) {
		c := s.params
		c.lease = d
		sent := time.Now()
		held, err := s.lock.kind.extend(ctx, c)
		if held && err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.extendDeadlineLocked(sent, d)
		}
		return held, err
	})
}

// Reenter holds the lock once more in the name of the same owner: it is given
// back when all holds are unlocked, in any order. It returns ErrNotReentrant for
// kinds that cannot be entered twice, ErrLost if the lock is not held any more,
// ErrNotHeld after Unlock.
func (h *Hold) Reenter(ctx context.Context) (*Hold, error) {
	return h.session.reenter(ctx, h, h.session.params.lease)
}

// Unlock ends the hold; the last hold of an owner gives the lock back and wakes
// who waits for it. The context of the hold ends before Redis is told.
//
// It works after ctx has ended, with its own time: at most two call timeouts, and
// one more if a renewal is in progress. Calling it again returns the same result.
// ErrLost reports that the lock had been lost before; whoever holds it now is not
// disturbed. Any other error says that Redis did not answer: it is told again in
// the background, and the lease ends in any case.
func (h *Hold) Unlock(ctx context.Context) error {
	h.unlock.Do(func() { h.result = h.session.unlock(ctx, h) })
	return h.result
}
