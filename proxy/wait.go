package proxy

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
// first served for each key. A request waits only for limits with wait. It is refused at once if
// the required wait is longer than allowed. If the client disconnects while it waits, as far as the
// connection shows that, nothing is taken.
func (a *admitter) waitInQueue(client context.Context, q *admission) taker {
	return func(_ context.Context, claims []limiter.Claim, d *limiter.Decision) error {
		p, first := q.waitOptions()
		if first == nil {
			return a.waitQueue.Wait(context.WithoutCancel(client), claims, d, p)
		}
		waiting := a.metrics.waiting.WithLabelValues(first.Route, first.Name)
		var since time.Time
		p.OnWait = func() {
			q.waited, since = true, time.Now()
			waiting.Inc()
		}
		began := time.Now()
		err := a.waitQueue.Wait(client, claims, d, p)
		if q.waited {
			waiting.Dec()
			q.waitTime = time.Since(since)
		} else if a.timeout > 0 {
			a.metrics.observeStoreCall("take", time.Since(began), err)
		}
		if how := q.waitResult(err, d); how != "" {
			a.metrics.waits.WithLabelValues(first.Route, first.Name, how).Inc()
		}
		return err
	}
}

// waitOptions returns how long to wait for each claim. first is the limit in whose queue the
// request waits, or nil.
func (a *admission) waitOptions() (p limiter.WaitOptions, first *limit) {
	p.MaxWait = make([]time.Duration, len(a.claims.claims))
	for i := range a.claims.claims {
		of := a.claims.windows[i].of
		if p.MaxWait[i] = of.Wait; of.Wait > 0 && first == nil {
			first, p.MaxWaiting = of, of.MaxWaiting
		}
	}
	return p, first
}

// waitResult returns the result of waiting as a label value, or "" if the request did not wait.
func (a *admission) waitResult(err error, d *limiter.Decision) string {
	switch {
	case errors.Is(err, limiter.ErrQueueFull):
		return waitQueueFull
	case !a.waited || errors.Is(err, limiter.ErrUnavailable):
		return ""
	case err != nil:
		return waitGone
	case d.Allowed:
		return waitPassed
	}
	return waitRefused
}
