package cluster

import "time"

// driftAfter is how long nodes may serve different configurations before it is
// reported as drift: longer than a reload of all nodes takes.
const driftAfter = 15 * time.Second

// A driftTracker detects configuration drift: other nodes that serve another
// configuration for some time. Only the heartbeat goroutine uses it.
type driftTracker struct {
	since    time.Time // zero while all serve the same
	reported int       // number of drifting nodes reported last
}

// note updates the number of differing nodes. It returns the number to report,
// and whether it has changed.
func (d *driftTracker) note(now time.Time, others int) (reported int, news bool) {
	switch {
	case others == 0:
		d.since = time.Time{}
	case d.since.IsZero():
		d.since = now
	}
	if others > 0 && now.Sub(d.since) < driftAfter {
		others = 0
		if d.reported > 0 {
			others = d.reported
		}
	}
	news = others != d.reported
	d.reported = others
	return others, news
}
