package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// unbounded is what stands for no bound.
const unbounded = "none"

// newKeys reads how many requests with new keys a client may send; the zero Rate
// is any number.
func (r *loader) newKeys(text *string) limiter.Rate {
	if *text == "" || *text == unbounded {
		return limiter.Rate{} // or a problem already
	}
	rate, err := limiter.ParseRate(*text)
	if err == nil {
		err = limiter.CheckKeyGuard(rate)
	}
	if err != nil {
		what, instead, _ := strings.Cut(err.Error(), "; ")
		r.wrong(text, what, instead+", or "+unbounded)
		return limiter.Rate{}
	}
	return rate
}

// newKeysOf reads how many requests with new keys a client may send to a route, and
// what becomes of more.
func (r *routes) newKeysOf(f *routeForm, limits []*Limit) (limiter.Rate, Mode) {
	mode := Mode(cmp.Or(f.Mode, r.defaults.Mode))
	if !r.given(&f.NewKeys) {
		return r.newly, mode
	}
	invented := slices.ContainsFunc(limits, func(l *Limit) bool {
		return slices.ContainsFunc(l.counts(), (*key.Spec).ClientChosen)
	})
	rate := r.newKeys(&f.NewKeys)
	if rate.Count > 0 && !invented {
		r.warn(&f.NewKeys, "no limit of this route has a key that a client could invent", "leave it out")
	}
	return rate, mode
}

// counts are the keys that l counts by, and what it counts.
func (l *Limit) counts() []*key.Spec {
	var all []*key.Spec
	for _, s := range []*key.Spec{l.Key, l.Distinct} {
		if s != nil {
			all = append(all, s)
		}
	}
	return all
}
