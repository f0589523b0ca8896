package upstream

import "time"

// A Condition is whether a target is asked, in a word.
type Condition string

// The conditions.
const (
	Healthy   Condition = "healthy"
	SlowStart Condition = "slow_start" // it is back, and gets a growing part of its share
	Probing   Condition = "probing"    // it has been left alone, and the next request finds out
	Ejected   Condition = "ejected"    // passive health checks (outlier detection): left alone for a while
	Unhealthy Condition = "unhealthy"  // active health checks say that it is down
)

// A TargetStatus is how a target fares, and what it is working on.
type TargetStatus struct {
	Target    string
	Weight    int
	Condition Condition
	InFlight  int // requests
	// FailedConnects and FailedChecks are how many in a row went wrong.
	FailedConnects, FailedChecks int
	EjectedUntil                 time.Time // zero when it is not
	Share                        float64   // of what it would get in good health; below 1 while it starts slowly
}

// TargetStatuses tell how the targets fare now, in the order of the configuration, and how
// many requests wait for one of them.
func (p *Pool) TargetStatuses() (all []TargetStatus, waiting int) {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	now := time.Now()
	for _, m := range p.backends {
		s := TargetStatus{
			Target: m.name, Weight: int(m.weight), Condition: Healthy, InFlight: m.inFlight,
			FailedConnects: m.failedConnects, FailedChecks: m.failedChecks, Share: m.slowStartFactor(now, p.health),
		}
		switch {
		case p.health.Path != "" && m.unhealthy:
			s.Condition = Unhealthy
		case now.Before(m.ejectedUntil):
			s.Condition, s.EjectedUntil = Ejected, m.ejectedUntil
		case p.ejects() && m.failedConnects >= p.health.FailureThreshold:
			s.Condition = Probing
		case s.Share < 1:
			s.Condition = SlowStart
		}
		all = append(all, s)
	}
	return all, len(p.group.waiting)
}
