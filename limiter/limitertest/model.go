package limitertest

import (
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A model is the simplest token bucket: a list of all permits with their times, which is
// counted each time.
type model struct {
	now time.Duration
	log []grant // oldest first
}

type grant struct {
	at     time.Duration
	n      int64
	permit limiter.Permit
}

// used returns the number of permits taken within the last length.
func (m *model) used(length time.Duration) (sum int64) {
	for _, g := range m.log {
		if m.now-g.at < length {
			sum += g.n
		}
	}
	return sum
}

// outcome returns the expected outcome of a claim, before or after it was taken.
func (m *model) outcome(r limiter.Rate, cost int64) limiter.Outcome {
	left := r.Count - m.used(r.Window)
	short := cost - left
	o := limiter.Outcome{Allowed: short <= 0, Remaining: max(0, left)}
	if short <= 0 {
		return o
	}
	for _, g := range m.log {
		if m.now-g.at >= r.Window {
			continue
		}
		if short -= g.n; short <= 0 {
			o.Wait = g.at + r.Window - m.now
			break
		}
	}
	return o
}

func (m *model) take(n int64, p limiter.Permit) {
	m.log = append(m.log, grant{at: m.now, n: n, permit: p})
}

func (m *model) refund(p limiter.Permit) {
	for i, g := range m.log {
		if g.permit == p {
			m.log[i].n = 0
		}
	}
}

// fullestWindow returns the largest number of permits in any window of this length, its
// end excluded.
func (m *model) fullestWindow(length time.Duration) (worst int64) {
	for i, from := range m.log {
		var sum int64
		for _, g := range m.log[i:] {
			if g.at-from.at < length {
				sum += g.n
			}
		}
		worst = max(worst, sum)
	}
	return worst
}
