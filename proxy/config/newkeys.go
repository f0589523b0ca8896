package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
)

// unbounded means no limit.
const unbounded = "none"

// newKeys parses new_keys; the zero Rate means no limit.
func (r *loader) newKeys(text *string) limiter.Rate {
	if *text == "" || *text == unbounded {
		return limiter.Rate{} // or already reported
	}
	rate, err := limiter.ParseRate(*text)
	if err == nil {
		err = limiter.CheckKeyGuard(rate)
	}
	if err != nil {
		what, instead, _ := strings.Cut(err.Error(), "; ")
		r.Wrong(text, what, instead+", or "+unbounded)
		return limiter.Rate{}
	}
	return rate
}

// newKeysOf compiles new_keys of a route, and its mode.
func (r *routes) newKeysOf(f *routeForm, limits []*Limit) (limiter.Rate, Mode) {
	mode := Mode(cmp.Or(f.Mode, r.defaults.Mode))
	if !r.Given(&f.NewKeys) {
		return r.defaultNewKeys, mode
	}
	clientChosen := slices.ContainsFunc(limits, func(l *Limit) bool {
		for read := range l.Reads() {
			if read.Purpose.Counts() && read.Key.ClientChosen() {
				return true
			}
		}
		return false
	})
	rate := r.newKeys(&f.NewKeys)
	if rate.Count > 0 && !clientChosen {
		r.Warn(&f.NewKeys, "no limit of this route has a key that clients choose", "leave it out")
	}
	return rate, mode
}
