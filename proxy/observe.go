package proxy

import (
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// An observer records what operators may query later: recent requests, and the keys with most
// requests. It has no influence on decisions.
type observer struct {
	recent *recentRing
	tops   *tops
	since  time.Time // minutes are counted from here, on the monotonic clock
}

func newObserver() *observer {
	return &observer{recent: newRecentRing(), tops: newTops(), since: time.Now()}
}

// minute returns the number of the minute of t.
func (o *observer) minute(t time.Time) int64 { return int64(t.Sub(o.since) / time.Minute) }

// observe records a request whose response has been written. All work that serves only the queries
// of operators is done here.
func (o *observer) observe(x *exchange) {
	o.recent.record(x)
	if !x.decided && len(x.takenPermits) == 0 {
		return
	}
	minute := o.minute(x.began)
	if x.decided {
		o.count(x, minute)
	}
	for i := range x.takenPermits {
		o.countShadow(x, &x.takenPermits[i], minute)
	}
}

// count counts the key of each limit that was evaluated, once for all of its windows and secrets.
func (o *observer) count(x *exchange, minute int64) {
	for from, to := 0, 0; from < len(x.claims.claims); from = to {
		var of *limit
		of, to = x.claims.limitAt(from)
		asked, refused := false, false
		for i := from; i < min(to, len(x.decision.Outcomes)); i++ {
			asked = asked || !x.decision.Outcomes[i].Unknown
			refused = refused || !x.decision.Outcomes[i].Allowed
		}
		if asked {
			of.top.count(x, of, minute, x.claims.claims[from].Key, refused)
		}
	}
}

// countShadow counts the key of a limit in shadow mode, which has a taken permit of its own.
func (o *observer) countShadow(x *exchange, t *takenPermit, minute int64) {
	if of := x.shadowLimit(t); of != nil {
		refused := slices.ContainsFunc(x.shadowRefusals, func(s refusal) bool { return s.window.of == of })
		of.top.count(x, of, minute, t.claims.claims[0].Key, refused)
	}
}

// shadowLimit returns the limit in shadow mode of t, or nil if t is of limits in enforce mode. t has
// no windows if all limits allowed the request while the store was unreachable.
func (a *admission) shadowLimit(t *takenPermit) *limit {
	if len(t.claims.windows) == 0 {
		return nil
	}
	if of := t.claims.windows[0].of; of.Mode == config.Shadow {
		return of
	}
	return nil
}

// count counts k, the key of limit of. t may be nil.
func (t *topLimit) count(x *exchange, of *limit, minute int64, k limiter.Key, refused bool) {
	if t == nil {
		return
	}
	fill := func(l *label) {
		l.size = 0
		if i := slices.IndexFunc(x.extracted.keys, func(k extractedKey) bool { return k.spec == of.Key }); i >= 0 {
			x.fillLabel(l, &x.extracted.keys[i])
		}
	}
	t.requests.Observe(minute, k, fill)
	if refused {
		t.refused.Observe(minute, k, fill)
	}
}
