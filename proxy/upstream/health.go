package upstream

import "time"

// slowStartShare is the part of its share that a target begins with when it is back.
const slowStartShare = 0.1

// A targetHealth is what is known of one target. Its group's mutex guards it.
type targetHealth struct {
	pools          int       // that have it as a target
	inFlight       int       // requests in progress
	failedConnects int       // connections in a row that could not be made
	ejectedUntil   time.Time // until when it is left alone
	failedChecks   int       // looks in a row that it did not pass
	unhealthy      bool      // as the last looks say
	recoveredAt    time.Time // when it came back; zero if it was never away
}

// connectSucceeded notes that s was reached.
func (s *targetHealth) connectSucceeded(now time.Time, h Health) {
	if h.FailureThreshold > 0 && s.failedConnects >= h.FailureThreshold {
		s.recoveredAt = now
	}
	s.failedConnects, s.ejectedUntil = 0, time.Time{}
}

// connectFailed notes that s could not be reached. From the h.After-th time in a row
// it rests, up to a quarter longer by spread, 0 to 1: not all proxies shall come
// back to it at once.
func (s *targetHealth) connectFailed(now time.Time, h Health, spread float64) {
	s.failedConnects++
	if h.FailureThreshold > 0 && s.failedConnects >= h.FailureThreshold {
		s.ejectedUntil = now.Add(h.EjectFor + time.Duration(spread*float64(h.EjectFor)/4))
	}
}

// recordCheck notes how a look at s went. It is down from the h.After-th bad look in
// a row on, and up with the first good one.
func (s *targetHealth) recordCheck(now time.Time, h Health, good bool) {
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

// ejected reports whether s is asked only when no other can be: it rests, or it
// has rested and one request is finding out whether that has helped.
func (s *targetHealth) ejected(now time.Time, h Health) bool {
	return now.Before(s.ejectedUntil) || h.FailureThreshold > 0 && s.failedConnects >= h.FailureThreshold && s.inFlight > 0
}

// slowStartFactor is the part of its share that s gets, growing from the time it came back.
func (s *targetHealth) slowStartFactor(now time.Time, h Health) float64 {
	if s.recoveredAt.IsZero() || h.SlowStart == 0 {
		return 1
	}
	return min(max(float64(now.Sub(s.recoveredAt))/float64(h.SlowStart), slowStartShare), 1)
}
