package limitertest

import (
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

// pauseOracle is Cooldown: the permits since it began again.
type pauseOracle struct{ log []taken }

// free is when the next permit is to be had.
func (o *pauseOracle) free(l *limiter.Limit) int64 {
	if len(o.log) == 0 {
		return 0
	}
	return o.log[len(o.log)-1].at + l.Steps[min(len(o.log), len(l.Steps))-1].Milliseconds()
}

// settle begins again a window after the last permit.
func (o *pauseOracle) settle(now int64, l *limiter.Limit) {
	if n := len(o.log); n > 0 && now-o.log[n-1].at >= l.Rate.Window.Milliseconds() {
		o.log = nil
	}
}

func (o *pauseOracle) left(now int64, l *limiter.Limit) int64 {
	if n := len(o.log); n > 0 && now < o.free(l) && now-o.log[n-1].at < l.Rate.Window.Milliseconds() {
		return 0
	}
	return 1
}

func (o *pauseOracle) take(l *limiter.Limit, t taken) {
	o.settle(t.at, l)
	o.log = append(o.log, t)
}

func (o *pauseOracle) refund(now int64, l *limiter.Limit, p limiter.Permit) bool {
	o.settle(now, l)
	before := len(o.log)
	o.log = slices.DeleteFunc(o.log, func(t taken) bool { return t.permit == p })
	return len(o.log) < before
}
