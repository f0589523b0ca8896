package config

import (
	"cmp"
	"time"
)

const (
	// longestWait bounds how long a request may wait: clients and proxies before
	// Weir give up sooner or later.
	longestWait = time.Minute
	// crowd is how many requests of a key may wait where the file does not say.
	crowd = 100
)

// wait reads how long requests may wait for a permit, and how many.
func (l *limits) wait(f *limitForm) (most time.Duration, waiting int) {
	switch {
	case !l.Given(&f.Wait) && l.Given(&f.MaxWaiting):
		l.Wrong(&f.MaxWaiting, "max_waiting needs wait", "write wait: beside it, for example 500ms, or leave max_waiting out")
	case !l.Given(&f.Wait):
		return 0, 0
	case l.Given(&f.Concurrent):
		l.Wrong(&f.Wait, "it is unknown when requests in progress will end", "write max_connections and queue for the upstream, or leave wait out")
	case time.Duration(f.Wait) > longestWait:
		l.Wrong(&f.Wait, "is longer than clients wait", "write at most 1m")
	case f.Mode != string(Enforce):
		l.Warn(&f.Wait, "wait has no effect while mode is "+f.Mode, "leave it out until the mode is enforce")
	}
	return time.Duration(f.Wait), cmp.Or(f.MaxWaiting, crowd)
}
