package limitertest

import "github.com/weir-proxy/weir/limiter"

// A conversionModel knows the time of everything.
type conversionModel struct {
	limit     *limiter.Limit
	taken     []conversionTake
	confirmed []conversionTake // of whom
	key       limiter.Key
	subjects  []limiter.Key
	granted   int
	refused   int
	steps     bool // the clock is set back now and then
}

type conversionTake struct {
	at, n   int64
	noted   int64 // the first at
	subject int
	permit  limiter.Permit
	closed  bool // refunded or returned
	left    bool // the window, and does not come back when the clock is set back
}

// state returns how much is open at now and how many subjects were confirmed, with what is taken counted
// for longer by late, and confirmations for less.
func (m *conversionModel) state(now, late int64) (open, v int64) {
	window := m.limit.Rate.Window.Milliseconds()
	for _, t := range m.taken {
		if !t.closed && !t.left && t.at > now-window-late {
			open += t.n
		}
	}
	subjects := map[int]bool{}
	for _, c := range m.confirmed {
		if !c.left && c.at > now-window+late {
			subjects[c.subject] = true
		}
	}
	return open, int64(len(subjects))
}

// observe is for a clock that was set back, maybe to now: what is later in all happened now, and what has left
// the window has left it for good.
func (m *conversionModel) observe(now int64, all []conversionTake) {
	for i := range all {
		e := &all[i]
		e.at = min(e.at, now)
		e.left = e.left || m.steps && e.at <= now-m.limit.Rate.Window.Milliseconds()
	}
}

// allows reports whether cost more may be open.
func (m *conversionModel) allows(now, late, cost int64) bool {
	open, v := m.state(now, late)
	p := int64(m.limit.Conversion)
	return open+cost <= m.limit.Rate.Count+v*(100-p)/p
}

// returnAll closes what is open of a subject.
func (m *conversionModel) returnAll(now int64, subject int) (decisions int) {
	window := m.limit.Rate.Window.Milliseconds()
	bucket := (window + 59) / 60
	for i := range m.taken {
		t := &m.taken[i]
		if t.subject == subject && !t.closed && t.noted-t.noted%bucket+bucket-1 > now-window {
			t.closed = true
			decisions++
		}
	}
	return decisions
}

// confirm confirms a subject at now.
func (m *conversionModel) confirm(now int64, subject int) {
	m.confirmed = append(m.confirmed, conversionTake{at: now, subject: subject})
}
