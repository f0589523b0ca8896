package proxy

import (
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// An observer remembers what operators may ask about later: the last requests, and the
// keys that are seen most. Nothing of it decides anything.
type observer struct {
	recent *recentRing
	tops   *tops
	since  time.Time // minutes are counted from here, whatever becomes of the clock
}

func newObserver() *observer {
	return &observer{recent: newRecentRing(), tops: newTops(), since: time.Now()}
}

// minute is the slice of time that t lies in.
func (o *observer) minute(t time.Time) int64 { return int64(t.Sub(o.since) / time.Minute) }

// observe notes a request whose answer has been written, and of which all is known that
// was decided: the one place in which a request pays for what operators may ask.
func (o *observer) observe(x *exchange) {
	o.recent.note(x)
	minute := o.minute(x.began)
	if x.decided {
		o.count(x, minute)
	}
	for i := range x.taken {
		o.countShadow(x, &x.taken[i], minute)
	}
}

// count counts the key of each limit that was asked: once, however many windows it has
// and secrets its key counts under.
func (o *observer) count(x *exchange, minute int64) {
	for from, to := 0, 0; from < len(x.claims.claims); from = to {
		var of *limit
		of, to = x.claims.limit(from)
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

// countShadow counts the key of a limit in shadow mode, which is a taking by itself.
func (o *observer) countShadow(x *exchange, t *takenPermit, minute int64) {
	if of := x.shadowOf(t); of != nil {
		refused := slices.ContainsFunc(x.shadowed, func(s refusal) bool { return s.window.of == of })
		of.top.count(x, of, minute, t.asked.claims[0].Key, refused)
	}
}

// shadowOf is the limit in shadow mode that t was taken of; nil if it is none. Where
// each limit let pass because the store was unreachable, nothing was taken of any.
func (q *admission) shadowOf(t *takenPermit) *limit {
	if len(t.asked.windows) == 0 {
		return nil
	}
	if of := t.asked.windows[0].of; of.Mode == config.Shadow {
		return of
	}
	return nil
}

// count counts k, the key of limit of; nil counts nothing.
func (t *topLimit) count(x *exchange, of *limit, minute int64, k limiter.Key, refused bool) {
	if t == nil {
		return
	}
	fill := func(l *label) {
		l.size = 0
		if i := slices.IndexFunc(x.extracted.keys, func(k extractedKey) bool { return k.by == of.Key }); i >= 0 {
			x.fillLabel(l, &x.extracted.keys[i])
		}
	}
	t.asked.Observe(minute, k, fill)
	if refused {
		t.refused.Observe(minute, k, fill)
	}
}
