package limit

import (
	"context"
	"errors"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// The results of waiting, as label values.
const (
	waitPassed    = "passed"  // it got a permit
	waitRefused   = "refused" // it got none in time, or another limit refused
	waitQueueFull = "crowded" // it could not wait, because too many requests were waiting
	waitGone      = "gone"    // the client disconnected
)

// waitInQueue returns a taker that waits after a refusal for as long as each limit allows, first come,
// first served for each key. Only group 0 is taken. A request waits only for limits with wait. It is refused at once if
// the required wait is longer than allowed. If the client disconnects while it waits, as far as the
// connection shows that, nothing is taken.
func (a *Admitter) waitInQueue(client context.Context, q *Admission) taker {
	return func(_ context.Context, claims []limiter.Claim, d *limiter.Decision) error {
		claims, _ = limiter.CutDeciding(claims)
		p, first := q.waitOptions()
		if first == nil {
			return a.WaitQueue.Wait(context.WithoutCancel(client), claims, d, p)
		}
		waiting := a.metrics.Waiting.WithLabelValues(first.Route, first.Name)
		var since time.Time
		p.OnWait = func() {
			q.Waited, since = true, time.Now()
			waiting.Inc()
		}
		began := time.Now()
		err := a.WaitQueue.Wait(client, claims, d, p)
		if q.Waited {
			waiting.Dec()
			q.WaitTime = time.Since(since)
		} else if a.Timeout > 0 {
			a.metrics.observeStoreCall("take", time.Since(began), err)
		}
		if how := q.waitResult(err, d); how != "" {
			a.metrics.Waits.WithLabelValues(first.Route, first.Name, how).Inc()
		}
		return err
	}
}

// NewWaiter returns what takes the claims of q in steps, for a caller with a clock of its own; nil if no limit lets the request
// wait. onHead is that of limiter.WaitQueue.
func (a *Admitter) NewWaiter(q *Admission, onHead func()) *limiter.Waiter {
	o, first := q.waitOptions()
	if first == nil {
		return nil
	}
	o.OnWait = func() { q.Waited = true }
	return a.WaitQueue.NewWaiter(q.Claims, o, onHead)
}

// waitOptions returns how long to wait for each claim. first is the limit in whose queue the
// request waits, or nil.
func (a *Admission) waitOptions() (p limiter.WaitOptions, first *Limit) {
	p.MaxWait = make([]time.Duration, len(a.Claims))
	for i := range a.Claims {
		of := a.Claims.Window(i).Of
		if p.MaxWait[i] = of.Wait; of.Wait > 0 && first == nil {
			first, p.MaxWaiting = of, of.MaxWaiting
		}
	}
	return p, first
}

// waitResult returns the result of waiting as a label value, or "" if the request did not wait.
func (a *Admission) waitResult(err error, d *limiter.Decision) string {
	switch {
	case errors.Is(err, limiter.ErrQueueFull):
		return waitQueueFull
	case !a.Waited || errors.Is(err, limiter.ErrUnavailable):
		return ""
	case err != nil:
		return waitGone
	case d.Allowed:
		return waitPassed
	}
	return waitRefused
}

// CanWait reports whether each limit that refuses lets requests wait for as long as necessary.
func (a *Admission) CanWait() bool {
	for i, o := range a.Decision.Outcomes {
		if !o.Allowed && o.Wait > a.Claims.Window(i).Of.Wait {
			return false
		}
	}
	return true
}
