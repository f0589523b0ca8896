package limitertest

import (
	"math"
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

// take appends t and removes expired records.
func (l *log) take(of *limiter.Limit, t grantRecord) {
	*l = append(slices.DeleteFunc(*l, func(old grantRecord) bool { return old.at < t.at-2*of.Horizon().Milliseconds() }), t)
}

// remove clears what p took, and reports whether there was anything.
func (l log) remove(p limiter.Permit) bool {
	i := slices.IndexFunc(l, func(t grantRecord) bool { return t.permit == p && t.n > 0 })
	if i >= 0 {
		l[i].n = 0
	}
	return i >= 0
}

// refund is remove for the oracles of which it does not matter when that is.
func (l log) refund(_ int64, _ *limiter.Limit, p limiter.Permit) bool { return l.remove(p) }

// sum returns the number of permits taken at times for which in returns true.
func (l log) sum(in func(at int64) bool) (n int64) {
	for _, t := range l {
		if in(t.at) {
			n += t.n
		}
	}
	return n
}

// used returns the number of permits taken within the last length.
func (l log) used(now int64, length time.Duration) int64 {
	return l.sum(func(at int64) bool { return now-at < length.Milliseconds() })
}

// fullestWindow returns the largest number of permits in any window of this length, its
// end excluded.
func (l log) fullestWindow(length time.Duration) (worst int64) {
	for i, from := range l {
		worst = max(worst, l[i:].sum(func(at int64) bool { return at-from.at < length.Milliseconds() }))
	}
	return worst
}

// logOracle is the oracle of TokenBucket, SlidingLog and Concurrent.
type logOracle struct{ log }

func (o *logOracle) left(now int64, l *limiter.Limit) int64 {
	return l.Rate.Count - o.used(now, l.Rate.Window)
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

// cooldownOracle is the oracle of Cooldown: the permits since the steps started.
type cooldownOracle struct{ log []grantRecord }

// nextFree returns when the next permit is available.
func (o *cooldownOracle) nextFree(l *limiter.Limit) int64 {
	if len(o.log) == 0 {
		return 0
	}
	return o.log[len(o.log)-1].at + l.Steps[min(len(o.log), len(l.Steps))-1].Milliseconds()
}

// advance restarts the steps one window after the last permit.
func (o *cooldownOracle) advance(now int64, l *limiter.Limit) {
	if n := len(o.log); n > 0 && now-o.log[n-1].at >= l.Rate.Window.Milliseconds() {
		o.log = nil
	}
}

func (o *cooldownOracle) left(now int64, l *limiter.Limit) int64 {
	if n := len(o.log); n > 0 && now < o.nextFree(l) && now-o.log[n-1].at < l.Rate.Window.Milliseconds() {
		return 0
	}
	return 1
}

func (o *cooldownOracle) take(l *limiter.Limit, t grantRecord) {
	o.advance(t.at, l)
	o.log = append(o.log, t)
}

func (o *cooldownOracle) refund(now int64, l *limiter.Limit, p limiter.Permit) bool {
	o.advance(now, l)
	before := len(o.log)
	o.log = slices.DeleteFunc(o.log, func(t grantRecord) bool { return t.permit == p })
	return len(o.log) < before
}

// fixedOracle is the oracle of FixedWindow.
type fixedOracle struct {
	log
	start int64
}

func (o *fixedOracle) hasStarted(now int64, l *limiter.Limit) bool {
	return o.start > 0 && now-o.start < l.Rate.Window.Milliseconds()
}

func (o *fixedOracle) left(now int64, l *limiter.Limit) int64 {
	if !o.hasStarted(now, l) {
		return l.Rate.Count
	}
	return l.Rate.Count - o.sum(func(at int64) bool { return at >= o.start })
}

func (o *fixedOracle) take(l *limiter.Limit, t grantRecord) {
	if !o.hasStarted(t.at, l) {
		o.start = t.at
	}
	o.log.take(l, t)
}

// slidingOracle is the oracle of SlidingWindow. It counts whole windows from time 0, and
// weighs the previous one by the part of it that is less than a window old.
type slidingOracle struct{ log }

func (o *slidingOracle) left(now int64, l *limiter.Limit) int64 {
	length := l.Rate.Window.Milliseconds()
	number := now / length
	this := o.sum(func(at int64) bool { return at/length == number })
	before := o.sum(func(at int64) bool { return at/length == number-1 })
	part := float64((number+1)*length-now) / float64(length)
	return l.Rate.Count - this - int64(math.Ceil(float64(before)*part))
}

// gcraOracle is the oracle of GCRA: a leaky bucket.
type gcraOracle struct {
	log
	debt      float64
	at, empty int64
}

func (o *gcraOracle) debtAt(now int64, l *limiter.Limit) float64 {
	return max(0, o.debt-float64(now-o.at)*float64(l.Rate.Count)/float64(l.Rate.Window.Milliseconds()))
}

func (o *gcraOracle) left(now int64, l *limiter.Limit) int64 {
	return int64(math.Floor(float64(l.Capacity()) - o.debtAt(now, l) + 1e-6))
}

func (o *gcraOracle) take(l *limiter.Limit, t grantRecord) {
	owed := o.debtAt(t.at, l)
	if owed == 0 {
		o.empty = t.at
	}
	o.debt, o.at = owed+float64(t.n), t.at
	o.log.take(l, t)
}

// refund returns permits that were taken since the bucket was last empty.
func (o *gcraOracle) refund(now int64, l *limiter.Limit, p limiter.Permit) bool {
	owed := o.debtAt(now, l)
	i := slices.IndexFunc(o.log, func(t grantRecord) bool { return t.permit == p && t.n > 0 })
	if i < 0 {
		return false
	}
	t := o.log[i]
	if owed == 0 || t.at < o.empty || now-t.at >= l.Horizon().Milliseconds() {
		return false
	}
	o.debt, o.at = max(0, owed-float64(t.n)), now
	return o.remove(p)
}

// distinctOracle is the oracle of Distinct: a list of uses. The last two uses of each
// value can be refunded.
type distinctOracle struct{ log }

func (o *distinctOracle) isActive(now int64, c limiter.Claim) bool {
	return slices.ContainsFunc(o.log, func(t grantRecord) bool {
		return t.value == c.Value && t.n > 0 && now-t.at < c.Limit.Rate.Window.Milliseconds()
	})
}

func (o *distinctOracle) left(now int64, l *limiter.Limit) int64 {
	return l.Rate.Count - distinctValues(o.log, now-l.Rate.Window.Milliseconds())
}

// distinctValues returns the number of values that were used after a time.
func distinctValues(uses []grantRecord, after int64) (n int64) {
	for i, t := range uses {
		later := func(u grantRecord) bool { return u.value == t.value && u.n > 0 && u.at > after }
		if t.n > 0 && t.at > after && !slices.ContainsFunc(uses[:i], later) {
			n++
		}
	}
	return n
}

func (o *distinctOracle) take(l *limiter.Limit, t grantRecord) {
	uses := 1
	for i := len(o.log) - 1; i >= 0; i-- {
		if u := &o.log[i]; u.value == t.value && u.n > 0 && !u.isFinal {
			uses++
			u.isFinal = uses > 2
		}
	}
	o.log.take(l, t)
}

func (o *distinctOracle) refund(_ int64, _ *limiter.Limit, p limiter.Permit) bool {
	i := slices.IndexFunc(o.log, func(t grantRecord) bool { return t.permit == p })
	return i >= 0 && !o.log[i].isFinal && o.remove(p)
}
