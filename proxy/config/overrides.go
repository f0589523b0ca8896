package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// overrides compiles the rates for some values of the key.
func (l *limits) overrides(f *limitForm, limit *Limit) {
	if len(f.Overrides) == 0 || !l.literals.oneText(&f.Overrides, limit.Key) {
		return
	}
	limit.Overrides = map[limiter.Key][]limiter.Rate{}
	first := map[limiter.Key]string{}
	var hashed []string
	rates := map[string][]limiter.Rate{}
	for _, value := range slices.Sorted(maps.Keys(f.Overrides)) {
		texts := f.Overrides[value]
		l.values = append(l.values, Value{limit: f, Spec: limit.Key, Position: l.NameAt(texts), Text: value})
		own := l.override(texts, limit)
		if limit.Key.CanHash() && key.IsHashed(value) {
			if l.known(texts, limit.Key, value) {
				hashed, rates[value] = append(hashed, value), own
			}
			continue
		}
		k, ok := l.literals.key(texts, limit.Key, value)
		if !ok {
			continue
		}
		if other := first[k]; other != "" {
			l.WrongName(texts, form.Quote(value)+" is counted as "+form.Quote(other)+" is", "keep one of them")
		}
		first[k], limit.Overrides[k] = value, own
	}
	if len(hashed) > 0 {
		keys, _ := key.ParseList(limit.Key, strings.Join(hashed, "\n"), l.literals.privacy.secrets()...)
		limit.Hashed = &HashedOverrides{keys, rates}
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

// known reports whether a hashed value can be looked up, and reports a problem otherwise.
func (l *limits) known(texts *list, spec *key.Spec, value string) bool {
	_, problems := key.ParseList(spec, value, l.literals.privacy.secrets()...)
	for _, problem := range problems {
		_, instead, _ := strings.Cut(problem.Err.Error(), "; ")
		l.WrongName(texts, "is not a value of the key "+spec.Name+" that can be found", instead)
	}
	return len(problems) == 0
}

// concealedOverrides returns the overrides of f with values of a sensitive key replaced by hash.
func concealedOverrides(f *limitForm, spec *key.Spec, hash func(text string) string) map[string]*list {
	if spec == nil || !spec.IsConcealed() {
		return f.Overrides
	}
	all := map[string]*list{}
	for value, rates := range f.Overrides {
		all[hash(value)] = rates
	}
	return all
}
