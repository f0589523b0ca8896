package config

import (
	"slices"
	"strconv"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// forget is the number of last steps without an allowed request after which a cooldown
// starts over.
const forget = 2

// cooldown compiles the steps of a limit and its reset_on.
func (l *limits) cooldown(f *limitForm, limit *Limit) {
	l.without(f, "cooldown", "rate", "rates", "distinct", "overrides", "plans", "plan", "burst", "cost", "redisson_name", "redisson_version")
	limit.Algorithm = limiter.Cooldown
	switch {
	case len(f.Cooldown) == 0 && l.Valid(&f.Cooldown):
		l.Wrong(&f.Cooldown, "there is no pause", "write for example [1m, 5m, 1h]")
	case len(f.Cooldown) > limiter.MaxSteps:
		l.Wrong(&f.Cooldown, strconv.Itoa(len(f.Cooldown))+" steps are too many", "write at most "+strconv.Itoa(limiter.MaxSteps))
	}
	for i := range f.Cooldown {
		step := time.Duration(f.Cooldown[i])
		switch {
		case step == 0: // already reported
		case i > 0 && f.Cooldown[i] < f.Cooldown[i-1]:
			l.Wrong(&f.Cooldown[i], "is shorter than the step before", "write them in ascending order")
		case step > limiter.MaxWindow/forget:
			l.Wrong(&f.Cooldown[i], "is longer than can be remembered", "write at most 183d")
		}
		limit.Steps = append(limit.Steps, step)
	}
	if len(limit.Steps) > 0 {
		limit.Rates = []limiter.Rate{{Count: 1, Window: forget * slices.Max(limit.Steps)}}
	}
	limit.Reset = l.reset(f.ResetOn)
}

// reset compiles reset_on; resetBy resolves the route.
func (l *limits) reset(f *resetForm) *Reset {
	if f == nil {
		return nil
	}
	return &Reset{Route: f.Route, Status: l.successes(&f.Status)}
}

// resetBy checks that the route which the reset_on of a limit names can reset its cooldown, and finds the key there.
func (r *routes) resetBy(l compiledLimit) {
	pointer := &l.form.ResetOn.Route
	other := r.other(pointer, l.limit, l.limit.Key, effect{"the cooldown would be reset", "resets the cooldown"})
	if other == nil || !r.Valid(r.formOf[other]) {
		return
	}
	if l.limit.Reset.Key = other.reads(l.limit.Key); l.limit.Reset.Key == nil {
		r.Wrong(pointer, "route "+other.Name+" does not look at the key "+l.limit.Key.Name+", so it is unknown whose cooldown to reset", "give it a limit or a list on that key")
	}
}
