package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// few is a count up to which a loose algorithm is probably a mistake.
const few = 5

// many is a count above which a cheaper algorithm for Redis is suggested.
const many = 100

// mode returns the mode of a limit: its own, that of its route, or the default; shadow and
// off of the route take precedence.
func (l *limits) mode(f *limitForm) string {
	own := cmp.Or(f.Mode, l.route.Mode, l.defaults.Mode)
	if f.Mode == "" && own == string(Enforce) && l.Given(&f.Conversion) {
		own = string(Shadow) // until its figures have been seen
	}
	rank := []string{string(Enforce), string(Shadow), string(Off)}
	return rank[max(slices.Index(rank, own), slices.Index(rank, l.route.Mode), 0)]
}

// algorithm compiles the algorithm of a limit.
func (l *limits) algorithm(f *limitForm, limit *Limit) {
	limit.Algorithm, _ = limiter.ParseAlgorithm(cmp.Or(f.Algorithm, limiter.TokenBucket.String())) // one of the enum, or already reported
	limit.Burst = int64(f.Burst)
	if f.Burst != 0 && !limit.Algorithm.HasBurst() {
		l.Wrong(&f.Burst, "only gcra has a burst", "write algorithm: gcra, or leave it out")
		return
	}
	l.warnExpensive(f, limit)
	for _, rate := range limit.Rates {
		l.keepable(f, limit, rate)
		if limit.Algorithm.MayDouble() && rate.Count <= few {
			l.Warn(&f.Algorithm, limit.Algorithm.String()+" may let "+strconv.FormatInt(2*rate.Count, 10)+" pass within one window of "+rate.String(), "write token_bucket, which never lets more than the count pass")
		}
	}
}

// warnExpensive warns of a limit with many permits in Redis for which another algorithm has
// the same guarantees at a lower cost.
func (l *limits) warnExpensive(f *limitForm, limit *Limit) {
	if !limit.Algorithm.IsRedisson() || l.store != StoreRedis || l.Given(&f.RedissonName) || l.Given(&f.Conversion) {
		return
	}
	i := slices.IndexFunc(limit.Rates, func(r limiter.Rate) bool { return r.Count > many })
	if i < 0 {
		return
	}
	l.Warn(f, "a token bucket of "+limit.Rates[i].String()+" costs Redis about twice what a sliding log does, which promises the same",
		"write algorithm: sliding_log, unless Java programs share its keys; counts then start anew")
}

// keepable checks that the algorithm supports a rate.
func (l *limits) keepable(pointer any, limit *Limit, rate limiter.Rate) {
	whole := limiter.Limit{Name: "x", Rate: rate, Algorithm: limit.Algorithm, Burst: limit.Burst}
	if err := whole.Check(); err != nil {
		l.Wrong(pointer, "a burst of "+strconv.FormatInt(limit.Burst, 10)+" takes more than 366d to return at "+rate.String(), "write a smaller burst")
	}
}

// cost compiles the origin of a request's cost.
func (l *limits) cost(f *limitForm) *Cost {
	if !l.Given(&f.Cost) {
		if l.Given(&f.MaxCost) {
			l.Wrong(&f.MaxCost, "there is no cost", "write cost: with header:NAME or query:NAME, or leave max_cost out")
		}
		return nil
	}
	if !l.Given(&f.MaxCost) {
		l.Wrong(&f.Cost, "has no bound: one request could take all", "write max_cost: beside it, for example 10")
	}
	if f.Cost == "" {
		return nil // already reported
	}
	from, err := key.ParseOrigin(f.Cost)
	if err != nil || from.Source != key.Header && from.Source != key.Query {
		l.Wrong(&f.Cost, form.Quote(f.Cost)+" is not an origin of a cost", "write header:NAME or query:NAME")
		return nil
	}
	for _, text := range append([]string{f.Rate}, f.Rates...) {
		if rate, err := limiter.ParseRate(text); err == nil && int64(f.MaxCost) > max(rate.Count, int64(f.Burst)) {
			l.Warn(&f.MaxCost, "a request that asks for more than "+strings.TrimSpace(text)+" holds is refused with 400", "write at most "+strconv.FormatInt(rate.Count, 10))
		}
	}
	return &Cost{Spec: &key.Spec{Name: from.String(), From: from}, Max: int64(f.MaxCost)}
}
