package upstream

import "time"

// slowStartShare is the share of its weight that a recovered target has at first.
const slowStartShare = 0.1

// A targetHealth is the health of one target. The mutex of its group guards it.
type targetHealth struct {
	pools          int       // pools that have this target
	inFlight       int       // requests in progress
	failedConnects int       // consecutive failures to connect
	ejectedUntil   time.Time // end of the ejection
	failedChecks   int       // consecutive failed active checks
	unhealthy      bool      // result of the active checks
	recoveredAt    time.Time // zero if it has never failed
}

// connectSucceeded records a successful connection.
func (s *targetHealth) connectSucceeded(now time.Time, h *Health) {
	if h.FailureThreshold > 0 && s.failedConnects >= h.FailureThreshold {
		s.recoveredAt = now
	}
	s.failedConnects, s.ejectedUntil = 0, time.Time{}
}

// connectFailed records a failure to connect. After h.FailureThreshold consecutive
// failures the target is ejected for h.EjectFor and up to a quarter more. spread, from
// 0 to 1, selects the additional time, so that several proxies do not return to the
// target at the same moment.
func (s *targetHealth) connectFailed(now time.Time, h *Health, spread float64) {
	s.failedConnects++
	if h.FailureThreshold > 0 && s.failedConnects >= h.FailureThreshold {
		s.ejectedUntil = now.Add(h.EjectFor + time.Duration(spread*float64(h.EjectFor)/4))
	}
}

// recordCheck records the result of an active check. The target is unhealthy after
// h.FailureThreshold consecutive failures, and healthy after one success.
func (s *targetHealth) recordCheck(now time.Time, h *Health, good bool) {
	if !good {
		s.failedChecks++
		s.unhealthy = s.unhealthy || s.failedChecks >= h.FailureThreshold
		return
	}
	if s.unhealthy || h.FailureThreshold > 0 && s.failedConnects >= h.FailureThreshold {
		s.recoveredAt = now
	}
	s.failedChecks, s.unhealthy, s.failedConnects, s.ejectedUntil = 0, false, 0, time.Time{}
}

// ejected reports whether s is selected only if no other target is available: it is
// ejected, or its ejection has ended and one request is already probing it.
func (s *targetHealth) ejected(now time.Time, h *Health) bool {
	return now.Before(s.ejectedUntil) || h.FailureThreshold > 0 && s.failedConnects >= h.FailureThreshold && s.inFlight > 0
}

// slowStartFactor returns the share of its weight that s has. It grows linearly after a
// recovery.
func (s *targetHealth) slowStartFactor(now time.Time, h *Health) float64 {
	if s.recoveredAt.IsZero() || h.SlowStart == 0 {
		return 1
	}
	return min(max(float64(now.Sub(s.recoveredAt))/float64(h.SlowStart), slowStartShare), 1)
}
