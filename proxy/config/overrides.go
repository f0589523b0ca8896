package config

import (
	"maps"
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// overrides compiles the rates for some values of the key.
func (l *limits) overrides(f *limitForm, limit *Limit) {
	if len(f.Overrides) == 0 || !l.literals.oneText(&f.Overrides, limit.Key) {
		return
	}
	limit.Overrides = map[limiter.Key][]limiter.Rate{}
	first := map[limiter.Key]string{}
	for _, value := range slices.Sorted(maps.Keys(f.Overrides)) {
		texts := f.Overrides[value]
		l.values = append(l.values, Value{limit: f, Spec: limit.Key, Position: l.NameAt(texts), Text: value})
		own := l.override(texts, limit)
		k, ok := l.literals.key(texts, limit.Key, value)
		if !ok {
			continue
		}
		if other := first[k]; other != "" {
			l.WrongName(texts, form.Quote(value)+" is counted as "+form.Quote(other)+" is", "keep one of them")
		}
		first[k], limit.Overrides[k] = value, own
	}
}

// override compiles the rates for one value.
func (l *limits) override(texts *list, limit *Limit) []limiter.Rate {
	var each []*string
	for i := range *texts {
		each = append(each, &(*texts)[i])
	}
	if len(each) == 0 && l.Valid(texts) {
		l.Wrong(texts, "there is no rate", "write for example [20000/1h]")
	}
	rates := l.parse(each, limit)
	for i, rate := range rates {
		l.keepable(each[min(i, len(each)-1)], limit, rate)
	}
	return rates
}
