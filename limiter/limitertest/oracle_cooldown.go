package limitertest

import (
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

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
