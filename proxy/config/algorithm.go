package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

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
func (l *limits) mode(f *limitForm) Mode {
	own := cmp.Or(f.Mode, l.route.Mode, l.main.Defaults.Mode)
	if f.Mode == "" && own == Enforce && l.Given(&f.Conversion) {
		own = Shadow // until its figures have been seen
	}
	rank := []Mode{Enforce, Shadow, Off}
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
	if !limit.Algorithm.IsRedisson() || l.main.Store != StoreRedis || l.Given(&f.RedissonName) || l.Given(&f.Conversion) {
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
	if f.Cost == "" {
		return nil // none, or already reported
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

// Lease is the lease of a concurrent permit. It is renewed while the request is in
// progress.
const Lease = 30 * time.Second

// concurrent compiles the rate of a limit on concurrent requests.
func (l *limits) concurrent(f *limitForm, limit *Limit) {
	limit.Algorithm = limiter.Concurrent
	if f.Concurrent > 0 {
		limit.Rates = []limiter.Rate{{Count: int64(f.Concurrent), Window: Lease}}
	}
}

// forget is the number of last steps without an allowed request after which a cooldown
// starts over.
const forget = 2

// cooldown compiles the steps of a limit and its reset_on.
func (l *limits) cooldown(f *limitForm, limit *Limit) {
	limit.Algorithm = limiter.Cooldown
	if len(f.Cooldown) > limiter.MaxSteps {
		l.Wrong(&f.Cooldown, strconv.Itoa(len(f.Cooldown))+" steps are too many", "write at most "+strconv.Itoa(limiter.MaxSteps))
	}
	for i := range f.Cooldown {
		step := &f.Cooldown[i]
		l.refuseFirst([]finding{
			{*step != 0 && i > 0 && *step < f.Cooldown[i-1], step, "is shorter than the step before", "write them in ascending order"},
			{*step > limiter.MaxWindow/forget, step, "is longer than can be remembered", "write at most 183d"},
		})
	}
	limit.Steps = slices.Clone(f.Cooldown)
	if len(limit.Steps) > 0 {
		limit.Rates = []limiter.Rate{{Count: 1, Window: forget * slices.Max(limit.Steps)}}
	}
	if f.ResetOn != nil { // others resolves the route
		limit.Reset = &Reset{Route: f.ResetOn.Route, Status: l.successes(&f.ResetOn.Status)}
	}
}

// distinct compiles the key whose values are counted.
func (l *limits) distinct(f *limitForm, limit *Limit) {
	if f.Distinct == nil {
		return
	}
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

// percentage parses 1% to that of most; for others, which are reported, it returns 0.
func (l *loader) percentage(text *string, most int, example string) int64 {
	percent, is := strings.CutSuffix(*text, "%")
	n, err := strconv.Atoi(percent)
	if is && err == nil && n >= 1 && n <= most && form.IsWhole(percent) {
		return int64(n)
	}
	if *text != "" {
		l.Wrong(text, form.Quote(*text)+" is not a percentage", "write 1% to "+strconv.Itoa(most)+"%"+example)
	}
	return 0
}
