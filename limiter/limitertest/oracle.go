package limitertest

import (
	"slices"
	"sort"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// An oracle is the simplest implementation of an algorithm: it keeps every permit and
// counts all of them each time. Times are milliseconds. refund reports whether p was
// refunded by this call.
type oracle interface {
	left(now int64, l *limiter.Limit) int64
	take(l *limiter.Limit, t grantRecord)
	refund(now int64, l *limiter.Limit, p limiter.Permit) bool
}

func newOracle(a limiter.Algorithm) oracle {
	switch a {
	case limiter.FixedWindow:
		return new(fixedOracle)
	case limiter.SlidingWindow:
		return new(slidingOracle)
	case limiter.GCRA:
		return new(gcraOracle)
	case limiter.Distinct:
		return new(distinctOracle)
	case limiter.Cooldown:
		return new(cooldownOracle)
	}
	return new(logOracle)
}

// outcome returns the outcome that o expects for a claim. The wait is found by a search,
// because the number of available permits never decreases while none is taken.
func outcome(o oracle, now int64, c limiter.Claim) limiter.Outcome {
	left, wait := o.left(now, c.Limit), 0
	if values, ok := o.(*distinctOracle); !ok || !values.isActive(now, c) {
		wait = sort.Search(int(c.Limit.Horizon().Milliseconds())+1, func(d int) bool { return o.left(now+int64(d), c.Limit) >= c.Cost })
	}
	return limiter.Outcome{Allowed: wait == 0, Remaining: max(0, left), Wait: time.Duration(wait) * time.Millisecond}
}

// A grantRecord is what one decision took.
type grantRecord struct {
	at, n   int64
	value   limiter.Key // of Distinct
	permit  limiter.Permit
	isFinal bool // it cannot be refunded any more
}

// A log is a list of grants, oldest first.
type log []grantRecord

// add appends t and removes expired records.
func (o *log) add(l *limiter.Limit, t grantRecord) {
	*o = append(slices.DeleteFunc(*o, func(old grantRecord) bool { return old.at < t.at-2*l.Horizon().Milliseconds() }), t)
}

// remove clears what p took, and reports whether there was anything.
func (o log) remove(p limiter.Permit) bool {
	i := slices.IndexFunc(o, func(t grantRecord) bool { return t.permit == p && t.n > 0 })
	if i >= 0 {
		o[i].n = 0
	}
	return i >= 0
}

// sum returns the number of permits taken at times for which in returns true.
func (o log) sum(in func(at int64) bool) (n int64) {
	for _, t := range o {
		if in(t.at) {
			n += t.n
		}
	}
	return n
}

// logOracle is the oracle of TokenBucket, SlidingLog and Concurrent.
type logOracle struct{ log }

func (o *logOracle) left(now int64, l *limiter.Limit) int64 {
	return l.Rate.Count - o.sum(func(at int64) bool { return now-at < l.Rate.Window.Milliseconds() })
}
func (o *logOracle) take(l *limiter.Limit, t grantRecord) { o.add(l, t) }
func (o *logOracle) refund(_ int64, _ *limiter.Limit, p limiter.Permit) bool {
	return o.remove(p)
}

// renew changes the time of what p took to now, and reports whether it was still held.
func (o *logOracle) renew(now int64, l *limiter.Limit, p limiter.Permit) bool {
	for i, t := range o.log {
		if t.permit == p && t.n > 0 && now-t.at < l.Rate.Window.Milliseconds() {
			o.log[i].at = now
			return true
		}
	}
	return false
}
