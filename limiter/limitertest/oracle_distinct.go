package limitertest

import (
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

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
	o.add(l, t)
}

func (o *distinctOracle) refund(_ int64, _ *limiter.Limit, p limiter.Permit) bool {
	i := slices.IndexFunc(o.log, func(t grantRecord) bool { return t.permit == p })
	return i >= 0 && !o.log[i].isFinal && o.remove(p)
}
