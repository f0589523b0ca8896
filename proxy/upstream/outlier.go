package upstream

import (
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/proxy/stripe"
)

// slowStartShare is the share of its weight that a recovered target has at first.
const slowStartShare = 0.1

// A targetHealth is the health of one target. The mutex of its group guards it, except for inFlight and
// hasFailed.
type targetHealth struct {
	inFlight  stripe.Users // requests in progress
	hasFailed atomic.Bool  // failedConnects or ejectedUntil is set

	pools          int       // pools that have this target
	failedConnects int       // consecutive failures to connect
	ejectedUntil   time.Time // end of the ejection
	failedChecks   int       // consecutive failed active checks
	unhealthy      bool      // result of the active checks
	recoveredAt    time.Time // zero if it has never failed
}

// connectSucceeded records a successful connection.
func (t *targetHealth) connectSucceeded(now time.Time, h *Health) {
	if h.FailureThreshold > 0 && t.failedConnects >= h.FailureThreshold {
		t.recoveredAt = now
	}
	t.failedConnects, t.ejectedUntil = 0, time.Time{}
	t.hasFailed.Store(false)
}

// connectFailed records a failure to connect. After h.FailureThreshold consecutive
// failures the target is ejected for h.EjectFor and up to a quarter more. spread, from
// 0 to 1, selects the additional time, so that several proxies do not return to the
// target at the same moment.
func (t *targetHealth) connectFailed(now time.Time, h *Health, spread float64) {
	t.failedConnects++
	t.hasFailed.Store(true)
	if h.FailureThreshold > 0 && t.failedConnects >= h.FailureThreshold {
		t.ejectedUntil = now.Add(h.EjectFor + time.Duration(spread*float64(h.EjectFor)/4))
	}
}

// recordCheck records the result of an active check. The target is unhealthy after
// h.FailureThreshold consecutive failures, and healthy after one success.
func (t *targetHealth) recordCheck(now time.Time, h *Health, good bool) {
	if !good {
		t.failedChecks++
		t.unhealthy = t.unhealthy || t.failedChecks >= h.FailureThreshold
		return
	}
	if t.unhealthy || h.FailureThreshold > 0 && t.failedConnects >= h.FailureThreshold {
		t.recoveredAt = now
	}
	t.failedChecks, t.unhealthy, t.failedConnects, t.ejectedUntil = 0, false, 0, time.Time{}
	t.hasFailed.Store(false)
}

// ejected reports whether t is selected only if no other target is available: it is
// ejected, or its ejection has ended and one request is already probing it.
func (t *targetHealth) ejected(now time.Time, h *Health) bool {
	return now.Before(t.ejectedUntil) || h.FailureThreshold > 0 && t.failedConnects >= h.FailureThreshold && t.inFlight.Sum() > 0
}

// slowStartFactor returns the share of its weight that t has. It grows linearly after a
// recovery.
func (t *targetHealth) slowStartFactor(now time.Time, h *Health) float64 {
	if t.recoveredAt.IsZero() || h.SlowStart == 0 {
		return 1
	}
	return min(max(float64(now.Sub(t.recoveredAt))/float64(h.SlowStart), slowStartShare), 1)
}
