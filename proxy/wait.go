package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// How waiting ended, as metrics call it.
const (
	waitPassed    = "passed"  // its turn came
	waitRefused   = "refused" // not in time, or another limit refused
	waitQueueFull = "crowded" // it never began: too many waited
	waitGone      = "gone"    // the client left
)

// inLine asks for claims so that a refusal is waited for as long as each limit
// says, first come, first served for each key. A request waits for no limit that
// does not say so, and for none longer than it says; when the time to wait is
// known to be longer it is refused at once. A client that leaves meanwhile, as far
// as its connection tells, has taken nothing.
func (a *admitter) inLine(client context.Context, q *admission) taker {
	return func(_ context.Context, claims []limiter.Claim, d *limiter.Decision) error {
		p, first := q.waitOptions()
		if first == nil {
			return a.line.Wait(context.WithoutCancel(client), claims, d, p)
		}
		waiting := a.metrics.waiting.WithLabelValues(q.route.Name, first.Name)
		var since time.Time
		p.OnWait = func() {
			q.waited, since = true, time.Now()
			waiting.Inc()
		}
		began := time.Now()
		err := a.line.Wait(client, claims, d, p)
		if q.waited {
			waiting.Dec()
			q.waitTook = time.Since(since)
		} else if a.timeout > 0 {
			a.metrics.asked("take", time.Since(began), err)
		}
		if how := q.howWaited(err, d); how != "" {
			a.metrics.waits.WithLabelValues(q.route.Name, first.Name, how).Inc()
		}
		return err
	}
}

// waitOptions are how long each claim is waited for; first is the limit in whose line
// the request stands, or nil.
func (q *admission) waitOptions() (p limiter.WaitOptions, first *limit) {
	p.MaxWait = make([]time.Duration, len(q.claims.claims))
	for i := range q.claims.claims {
		of := q.claims.windows[i].of
		if p.MaxWait[i] = of.Wait; of.Wait > 0 && first == nil {
			first, p.MaxWaiting = of, of.MaxWaiting
		}
	}
	return p, first
}

// howWaited says how waiting ended; empty if there was none.
func (q *admission) howWaited(err error, d *limiter.Decision) string {
	switch {
	case errors.Is(err, limiter.ErrQueueFull):
		return waitQueueFull
	case !q.waited || errors.Is(err, limiter.ErrUnavailable):
		return ""
	case err != nil:
		return waitGone
	case d.Allowed:
		return waitPassed
	}
	return waitRefused
}
