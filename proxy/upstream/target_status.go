package upstream

import "time"

// A Condition is the condition of a target.
type Condition string

// The conditions of a target.
const (
	Healthy   Condition = "healthy"
	SlowStart Condition = "slow_start" // recovered: its share grows
	Probing   Condition = "probing"    // its ejection has ended: the next request tests it
	Ejected   Condition = "ejected"    // by passive health checks (outlier detection)
	Unhealthy Condition = "unhealthy"  // by active health checks
)

// A TargetStatus is the health and the load of a target.
type TargetStatus struct {
	Target    string
	Weight    int
	Condition Condition
	InFlight  int // number of requests
	// FailedConnects and FailedChecks count consecutive failures.
	FailedConnects, FailedChecks int
	EjectedUntil                 time.Time // zero if it is not ejected
	Share                        float64   // of its weight; below 1 during a slow start
}

// IsPreferred reports whether the target is preferred over those of which it is not true.
func (s *TargetStatus) IsPreferred() bool { return s.Condition != Ejected && s.Condition != Unhealthy }

// TargetStatuses returns the status of all targets, in the order of the configuration,
// and the number of requests in the queue.
func (p *Pool) TargetStatuses() (all []TargetStatus, waiting int) {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	now := time.Now()
	for _, m := range p.backends {
		s := TargetStatus{
			Target: m.name, Weight: int(m.weight), Condition: Healthy, InFlight: int(m.inFlight.Sum()),
			FailedConnects: m.failedConnects, FailedChecks: m.failedChecks, Share: m.slowStartFactor(now, &p.health),
		}
		switch {
		case p.unhealthy(m):
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
