package config

import (
	"strconv"

	"github.com/weir-proxy/weir/limiter"
)

// distinct compiles the key whose values are counted.
func (l *limits) distinct(f *limitForm, limit *Limit) {
	if f.Distinct == nil {
		return
	}
	l.without(f, "distinct", "cost", "burst", "redisson_name", "redisson_version")
	limit.Algorithm, limit.Burst = limiter.Distinct, 0
	limit.Distinct = l.keys.use(f.Distinct)
	l.parameters(f.Distinct, limit.Distinct)
	if limit.Distinct != nil && limit.Key != nil && (limit.Distinct == limit.Key || limit.Distinct.Name == limit.Key.Name) {
		l.Wrong(f.Distinct, "distinct must name another key", "name another key, for example key: client_ip and distinct: phone")
	}
	for _, rate := range limit.Rates {
		if rate.Count > limiter.MaxDistinct {
			l.Wrong(f.Distinct, "stores every value, and "+strconv.FormatInt(rate.Count, 10)+" of one key are too many", "write a rate of at most "+strconv.Itoa(limiter.MaxDistinct))
		}
	}
}
