package cluster

import "time"

// driftAfter is how long nodes may serve different configurations before that is
// worth telling: longer than all of them need to reload.
const driftAfter = 15 * time.Second

// A driftTracker (configuration drift) is for how long other nodes have served another
// configuration. Only
// the goroutine that gives signs of life uses it.
type driftTracker struct {
	since    time.Time // zero while all serve the same
	reported int       // how many others were told of last
}

// note takes in how many others differ now. It returns how many are to be told
// of, and whether that is news.
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
