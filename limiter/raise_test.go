package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A share learns a changed limit at once, whatever the store last said of a key: what of the new limit is used is not
// granted again, and what is not is granted.
func TestShare_LearnsAChangedLimit(t *testing.T) {
	for _, a := range append(rated(), limiter.SlidingLog, limiter.Conversion) {
		for _, c := range []struct {
			from, to    int64
			here, there int64 // granted by the store, to this process and to others
			n           int
			want        int64
		}{
			{5, 1000, 5, 0, 1, 995},
			{5, 1000, 1, 4, 1, 995},
			{40, 400, 10, 30, 4, 90},
			{40, 80, 2, 38, 4, 10},
			{1000, 5, 10, 0, 1, 0},
			{1000, 5, 0, 10, 1, 0},
			{40, 20, 2, 10, 4, 2},
			{40, 40, 2, 38, 4, 0},
		} {
			t.Run(fmt.Sprint(a, c), func(t *testing.T) {
				d := newFallbackMemory(t, a, c.from, c.n)
				if a == limiter.Conversion {
					d.claim.Limit.Conversion, d.claim.Limit.Noted = 50, true
				}
				for i := range c.here {
					d.told(byte(i+1), c.from-i-1, 0)
				}
				if left := c.from - c.here - c.there; c.there > 0 {
					d.told(0, left, 10*time.Second)
				}
				d.changed(func(l *limiter.Limit) { l.Rate.Count = c.to })
				d.want(c.want)
			})
		}
	}
}

// changed has the next claims be under a changed limit.
func (f *fallbackMemory) changed(change func(l *limiter.Limit)) {
	l := *f.claim.Limit
	change(&l)
	f.claim.Limit = &l
}

// So it does in an outage, also of a key that it has counted since.
func TestShare_LearnsAChangedLimitInTheOutage(t *testing.T) {
	for _, a := range append(rated(), limiter.SlidingLog, limiter.Conversion) {
		d := newFallbackMemory(t, a, 5, 1)
		if a == limiter.Conversion {
			d.claim.Limit.Conversion, d.claim.Limit.Noted = 50, true
		}
		d.told(0, 0, 10*time.Second)
		d.want(0)
		d.changed(func(l *limiter.Limit) { l.Rate.Count = 1000 })
		d.want(995)
		d.changed(func(l *limiter.Limit) { l.Rate.Count = 100 })
		d.want(0)
	}
}

// A burst, a window, steps and numbers of values and of concurrent requests are learned as well.
func TestShare_LearnsAnyChange(t *testing.T) {
	d := newFallbackMemory(t, limiter.GCRA, 10, 1)
	d.claim.Limit.Burst = 2
	d.told(0, 0, time.Second)
	d.changed(func(l *limiter.Limit) { l.Burst = 7 })
	d.want(5)

	d = newFallbackMemory(t, limiter.TokenBucket, 1, 1)
	d.claim.Limit.Rate.Window = time.Hour
	d.told(0, 0, time.Hour)
	d.changed(func(l *limiter.Limit) { l.Rate.Window = 10 * time.Second })
	d.want(0)
	d.now = d.now.Add(10 * time.Second)
	d.want(1)

	d = newFallbackMemory(t, limiter.Distinct, 2, 1)
	d.claim.Value = limiter.KeyOf("a")
	d.told(0, 0, time.Hour)
	d.changed(func(l *limiter.Limit) { l.Rate.Count = 3 })
	var said limiter.Decision
	if err := d.Take(t.Context(), []limiter.Claim{d.share(1)}, &said); err != nil || !said.Allowed {
		t.Errorf("a third value: %+v, %v", said, err)
	}

	d = newFallbackMemory(t, limiter.Concurrent, 1, 1)
	d.told(1, 0, 0)
	d.changed(func(l *limiter.Limit) { l.Rate.Count = 3 })
	d.want(2)

	d = newFallbackMemory(t, limiter.Cooldown, 1, 1)
	d.claim.Limit.Rate.Window, d.claim.Limit.Steps = time.Hour, []time.Duration{time.Hour}
	d.told(1, 0, time.Hour)
	d.told(0, 0, time.Hour)
	d.changed(func(l *limiter.Limit) { l.Steps = []time.Duration{time.Second} })
	d.now = d.now.Add(time.Second)
	d.want(1)
}
