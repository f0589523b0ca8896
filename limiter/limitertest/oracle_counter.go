package limitertest

import (
	"math"
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

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
	o.add(l, t)
}
func (o *fixedOracle) refund(_ int64, _ *limiter.Limit, p limiter.Permit) bool {
	return o.remove(p)
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
func (o *slidingOracle) take(l *limiter.Limit, t grantRecord) { o.add(l, t) }
func (o *slidingOracle) refund(_ int64, _ *limiter.Limit, p limiter.Permit) bool {
	return o.remove(p)
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
	o.add(l, t)
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
