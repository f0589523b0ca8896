package config

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// forget is the number of last steps without an allowed request after which a cooldown
// starts over.
const forget = 2

// cooldown compiles the steps of a limit and its reset_on.
func (l *limits) cooldown(f *limitForm, limit *Limit) {
	l.without(f, "cooldown", "rate", "rates", "distinct", "overrides", "burst", "cost", "redisson_name", "redisson_version")
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

// reset compiles reset_on; resets resolves the route.
func (l *limits) reset(f *resetForm) *Reset {
	if f == nil {
		return nil
	}
	if l.Given(&f.Status) && len(f.Status) == 0 && l.Valid(&f.Status) {
		l.Wrong(&f.Status, "no status is given", "write for example [2xx], or leave it out")
	}
	status := f.Status.statuses()
	if !l.Given(&f.Status) {
		status.add(200, 299)
	}
	return &Reset{Route: f.Route, Status: status}
}

// resets resolves the routes whose responses reset cooldowns. Such a route must read the
// same key, to know which cooldown to reset.
func (r *routes) resets(forms []*routeForm, made []*Route) {
	byName := map[string]*Route{}
	for _, route := range made {
		byName[route.Name] = route
	}
	at := 0
	for _, given := range forms {
		if given == nil {
			continue
		}
		route, l := made[at], 0
		at++
		for _, f := range given.Limits {
			if f == nil {
				continue
			}
			if limit := route.Limits[l]; limit.Reset != nil && f.ResetOn.Route != "" && limit.Key != nil {
				r.resetBy(f, cooldownOf{route, limit}, byName)
			}
			l++
		}
	}
}

// A cooldownOf is a cooldown and its route.
type cooldownOf struct {
	route *Route
	limit *Limit
}

// resetBy checks that the route which c's reset_on names can reset it, and finds the
// key there.
func (r *routes) resetBy(f *limitForm, c cooldownOf, byName map[string]*Route) {
	pointer, limit := &f.ResetOn.Route, c.limit
	other := byName[limit.Reset.Route]
	switch {
	case other == nil:
		r.Wrong(pointer, "there is no route "+form.Quote(*pointer), form.Suggest(*pointer, slices.Sorted(maps.Keys(byName))))
	case other == c.route:
		r.Wrong(pointer, "the cooldown would be reset by each allowed request", "name another route")
	default:
		if limit.Reset.Key = other.reads(limit.Key); limit.Reset.Key == nil {
			r.Wrong(pointer, "route "+other.Name+" does not look at the key "+limit.Key.Name+", so it is unknown whose cooldown to reset", "give it a limit or a list on that key")
		}
		if len(other.Match.Methods) == 0 {
			r.Warn(pointer, "route "+other.Name+" has no methods: a GET that its upstream answers with such a status resets the cooldown, too", "give it the method that verifies, methods: [POST] for example")
		}
	}
}

// reads returns the key of a limit or list of the r that equals spec, or nil.
func (r *Route) reads(spec *key.Spec) *key.Spec {
	for _, l := range r.Limits {
		if l.Mode != Off && l.Key != nil && (l.Key == spec || reflect.DeepEqual(l.Key, spec)) {
			return l.Key
		}
	}
	for _, l := range r.Lists {
		if l.Key == spec || reflect.DeepEqual(l.Key, spec) {
			return l.Key
		}
	}
	return nil
}
