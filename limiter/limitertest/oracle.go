package limitertest

import (
	"math"
	"sort"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// An oracle is the plainest form of one algorithm: it keeps every permit and
// counts everything each time. Times are milliseconds.
type oracle interface {
	left(now int64, l *limiter.Limit) int64
	take(now int64, l *limiter.Limit, n int64, p limiter.Permit)
	refund(now int64, l *limiter.Limit, p limiter.Permit)
}

func newOracle(a limiter.Algorithm) oracle {
	switch a {
	case limiter.FixedWindow:
		return new(fixedOracle)
	case limiter.SlidingWindow:
		return new(slidingOracle)
	case limiter.GCRA:
		return new(gcraOracle)
	}
	return new(logOracle)
}

// outcome asks o what a claim hears. The wait is searched, not computed: what is
// left never falls while nobody takes.
func outcome(o oracle, now int64, l *limiter.Limit, cost int64) limiter.Outcome {
	left := o.left(now, l)
	wait := sort.Search(int(l.Horizon().Milliseconds())+1, func(d int) bool { return o.left(now+int64(d), l) >= cost })
	return limiter.Outcome{Allowed: wait == 0, Remaining: max(0, left), Wait: time.Duration(wait) * time.Millisecond}
}

type taken struct {
	at, n  int64
	permit limiter.Permit
}

type log []taken

func (o *log) add(now, n int64, p limiter.Permit) { *o = append(*o, taken{now, n, p}) }

// drop forgets what p took and returns it.
func (o log) drop(p limiter.Permit) (taken, bool) {
	for i, t := range o {
		if t.permit == p && t.n > 0 {
			o[i].n = 0
			return t, true
		}
	}
	return taken{}, false
}

// sum is what was taken at times for which in holds.
func (o log) sum(in func(at int64) bool) (n int64) {
	for _, t := range o {
		if in(t.at) {
			n += t.n
		}
	}
	return n
}

// logOracle is TokenBucket and Concurrent.
type logOracle struct{ log }

func (o *logOracle) left(now int64, l *limiter.Limit) int64 {
	return l.Rate.Count - o.sum(func(at int64) bool { return now-at < l.Rate.Window.Milliseconds() })
}
func (o *logOracle) take(now int64, _ *limiter.Limit, n int64, p limiter.Permit) { o.add(now, n, p) }
func (o *logOracle) refund(_ int64, _ *limiter.Limit, p limiter.Permit)          { o.drop(p) }

// fixedOracle remembers when its window began.
type fixedOracle struct {
	log
	start int64
}

func (o *fixedOracle) begun(now int64, l *limiter.Limit) bool {
	return o.start > 0 && now-o.start < l.Rate.Window.Milliseconds()
}

func (o *fixedOracle) left(now int64, l *limiter.Limit) int64 {
	if !o.begun(now, l) {
		return l.Rate.Count
	}
	return l.Rate.Count - o.sum(func(at int64) bool { return at >= o.start })
}

func (o *fixedOracle) take(now int64, l *limiter.Limit, n int64, p limiter.Permit) {
	if !o.begun(now, l) {
		o.start = now
	}
	o.add(now, n, p)
}
func (o *fixedOracle) refund(_ int64, _ *limiter.Limit, p limiter.Permit) { o.drop(p) }

// slidingOracle counts whole windows from time 0, the one before by what part of
// it is less than a window old.
type slidingOracle struct{ log }

func (o *slidingOracle) left(now int64, l *limiter.Limit) int64 {
	length := l.Rate.Window.Milliseconds()
	number := now / length
	this := o.sum(func(at int64) bool { return at/length == number })
	before := o.sum(func(at int64) bool { return at/length == number-1 })
	part := float64((number+1)*length-now) / float64(length)
	return l.Rate.Count - this - int64(math.Ceil(float64(before)*part))
}
func (o *slidingOracle) take(now int64, _ *limiter.Limit, n int64, p limiter.Permit) {
	o.add(now, n, p)
}
func (o *slidingOracle) refund(_ int64, _ *limiter.Limit, p limiter.Permit) { o.drop(p) }

// gcraOracle is a bucket that leaks evenly.
type gcraOracle struct {
	log
	debt      float64
	at, empty int64
}

func (o *gcraOracle) owed(now int64, l *limiter.Limit) float64 {
	return max(0, o.debt-float64(now-o.at)*float64(l.Rate.Count)/float64(l.Rate.Window.Milliseconds()))
}

func (o *gcraOracle) left(now int64, l *limiter.Limit) int64 {
	return int64(math.Floor(float64(l.Most()) - o.owed(now, l) + 1e-6))
}

func (o *gcraOracle) take(now int64, l *limiter.Limit, n int64, p limiter.Permit) {
	owed := o.owed(now, l)
	if owed == 0 {
		o.empty = now
	}
	o.debt, o.at = owed+float64(n), now
	o.add(now, n, p)
}

// refund gives back what was taken since the bucket was last empty.
func (o *gcraOracle) refund(now int64, l *limiter.Limit, p limiter.Permit) {
	owed := o.owed(now, l)
	for _, t := range o.log {
		if t.permit == p && (owed == 0 || t.at < o.empty || now-t.at >= l.Horizon().Milliseconds()) {
			return
		}
	}
	if t, ok := o.drop(p); ok {
		o.debt, o.at = max(0, owed-float64(t.n)), now
	}
}
