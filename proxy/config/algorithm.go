package config

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/view"
)

// few is a count up to which a loose algorithm is probably a mistake.
const few = 5

// many is a count above which a cheaper algorithm for Redis is suggested.
const many = 100

// mode returns the mode of a limit: its own, that of its route, or the default; shadow and
// off of the route take precedence.
func (l *limits) mode(f *Limit) Mode {
	own := cmp.Or(f.Mode, l.route.Mode, l.main.Defaults.Mode)
	if f.Mode == "" && own == Enforce && l.Given(&f.ConversionForm) {
		own = Shadow // until its figures have been seen
	}
	rank := []Mode{Enforce, Shadow, Off}
	return rank[max(slices.Index(rank, own), slices.Index(rank, l.route.Mode), 0)]
}

// algorithm compiles the algorithm of a limit.
func (l *limits) algorithm(f, limit *Limit) {
	limit.Algorithm, _ = limiter.ParseAlgorithm(cmp.Or(f.AlgorithmForm, limiter.TokenBucket.String())) // one of the enum, or already reported
	if f.Burst != 0 && !limit.Algorithm.HasBurst() {
		l.Wrong(&f.Burst, "only gcra has a burst", "write algorithm: gcra, or leave it out")
		return
	}
	l.warnExpensive(f, limit)
	for _, rate := range limit.Rates {
		l.keepable(f, limit, rate)
		if limit.Algorithm.MayDouble() && rate.Count <= few {
			l.Warn(&f.AlgorithmForm, limit.Algorithm.String()+" may let "+strconv.FormatInt(2*rate.Count, 10)+" pass within one window of "+rate.String(), "write token_bucket, which never lets more than the count pass")
		}
	}
}

// warnExpensive warns of a limit with many permits in Redis for which another algorithm has
// the same guarantees at a lower cost.
func (l *limits) warnExpensive(f, limit *Limit) {
	if !limit.Algorithm.IsRedisson() || l.main.Store != StoreRedis || l.Given(&f.RedissonName) || l.Given(&f.ConversionForm) {
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

// Lease is the lease of a concurrent permit. It is renewed while the request is in
// progress.
const Lease = 30 * time.Second

// forget is the number of last steps without an allowed request after which a cooldown
// starts over.
const forget = 2

// cooldown compiles the steps of a limit and its reset_on.
func (l *limits) cooldown(f, limit *Limit) {
	limit.Algorithm = limiter.Cooldown
	if len(f.Steps) > limiter.MaxSteps {
		l.Wrong(&f.Steps, strconv.Itoa(len(f.Steps))+" steps are too many", "write at most "+strconv.Itoa(limiter.MaxSteps))
	}
	for i := range f.Steps {
		step := &f.Steps[i]
		l.refuseFirst([]finding{
			{*step != 0 && i > 0 && *step < f.Steps[i-1], step, "is shorter than the step before", "write them in ascending order"},
			{*step > limiter.MaxWindow/forget, step, "is longer than can be remembered", "write at most 183d"},
		})
	}
	if len(limit.Steps) > 0 {
		limit.Rates = []limiter.Rate{{Count: 1, Window: forget * slices.Max(limit.Steps)}}
	}
	if f.Reset != nil { // others resolves the route
		limit.Reset = &Reset{Route: f.Reset.Route, Status: f.Reset.Status.orSuccess()}
	}
}

// distinct compiles the key whose values are counted.
func (l *limits) distinct(f, limit *Limit) {
	if f.DistinctOf == nil {
		return
	}
	limit.Algorithm, limit.Burst = limiter.Distinct, 0
	limit.Distinct = l.keys.use(f.DistinctOf)
	l.parameters(f.DistinctOf, limit.Distinct)
	if limit.Distinct != nil && limit.Key != nil && (limit.Distinct == limit.Key || limit.Distinct.Name == limit.Key.Name) {
		l.Wrong(f.DistinctOf, "distinct must name another key", "name another key, for example key: client_ip and distinct: phone")
	}
	for _, rate := range limit.Rates {
		if rate.Count > limiter.MaxDistinct {
			l.Wrong(f.DistinctOf, "stores every value, and "+strconv.FormatInt(rate.Count, 10)+" of one key are too many", "write a rate of at most "+strconv.Itoa(limiter.MaxDistinct))
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

// commonName matches names of common limits. They have no dot, so none is counted as
// ROUTE.LIMIT is.
var commonName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// compileCommon compiles the limits at the top, each once.
func (r *routes) compileCommon(forms map[string]*Limit) {
	r.common, r.naming = map[string]*Limit{}, map[string][]string{}
	l := &limits{routes: r, route: &Route{}}
	for _, name := range form.SortedKeys(forms) {
		f := forms[name]
		switch {
		case f.Named != "":
			l.Wrong(f, "want a mapping, got text", "write key: and rate: below it")
			continue
		case name == none || !commonName.MatchString(name):
			l.WrongName(f, form.Quote(name)+" is not a valid name for a limit of several routes", "begin with a letter, followed by letters, digits, _ or -")
		case l.Given(&f.Name):
			l.Wrong(&f.Name, "the limit is called "+name+" already", "leave it out")
		}
		r.common[name] = l.compile(f, name)
	}
}

// use returns a common limit as it applies to the route; nil after a problem. The route or
// defaults name it at pointer.
func (l *limits) use(pointer any, name string) *Limit {
	made := l.common[name]
	if made == nil {
		if l.main.LimitForms[name] == nil && l.Lacks(&l.main.LimitForms, name) {
			l.Wrong(pointer, "there is no limit "+form.Quote(name), cmp.Or(form.Near(name, form.SortedKeys(l.main.LimitForms)), "define it at the top, limits: {NAME: {key: client_ip, rate: 5/1m}}, or write a limit with key and rate here"))
		}
		return nil
	}
	here := *made
	here.Mode = l.mode(l.main.LimitForms[name])
	for _, read := range here.Reads() {
		for _, parameter := range missing(read.Key, l.params) {
			l.Wrong(pointer, "the limit "+name+" counts by path:"+parameter+", which the path of route "+l.route.Name+" does not have", "name it only in routes that have it")
		}
	}
	l.naming[name], l.used[l.main.LimitForms[name]] = append(l.naming[name], l.route.Name), true
	return &here
}

// link tells the limits of made which routes have one count with them.
func (r *routes) link(made []*Route) {
	for _, route := range made {
		for _, l := range route.Limits {
			if l.IsCommon() {
				l.Routes = r.naming[l.Name]
			}
		}
	}
}

// counters checks that no two limits count under one name: route a.b with limit c and
// route a with limit b.c would.
func (r *routes) counters() {
	first := map[string]*Limit{}
	for _, c := range r.compiled {
		f, id := c.form, c.ID
		other := first[id]
		switch {
		case id == "": // already reported
		case other == nil:
			first[id] = f
		case r.Given(&f.Was) || r.Given(&other.Was):
			if !r.Given(&f.Was) {
				f, other = other, f
			}
			r.Wrong(&f.Was, "the limit at "+r.Location(other).Position.String()+" counts as "+id, "leave was out, or take that limit out")
		case r.Valid(&f.Name):
			r.Wrong(&f.Name, "counts as "+id+", as the limit at "+r.Location(other).Position.String()+" does", "give the route or the limit another name")
		}
	}
}

// id returns the name under which a limit called name counts.
func (l *limits) id(f *Limit, name string) string {
	switch {
	case name == "":
		return "" // already reported
	case l.token(&f.Was, f.Was):
		return f.Was
	}
	return view.LimitName(l.route.Name, name)
}

// IsCommon reports whether several routes may have one count by l.
func (l *Limit) IsCommon() bool { return l.Route == "" }

// FullName returns the name of l in texts; see LimitName.
func (l *Limit) FullName() string { return view.LimitName(l.Route, l.Name) }

// Limits returns all limits in the order of the routes, each common one once: as it applies
// to the first of the routes where its mode is the strictest.
func (c *Config) Limits() []*Limit {
	var all []*Limit
	at := map[string]int{}
	rank := []Mode{Off, Shadow, Enforce}
	for _, r := range c.Routes {
		for _, l := range r.Limits {
			i, known := at[l.ID]
			switch {
			case !known:
				at[l.ID] = len(all)
				all = append(all, l)
			case slices.Index(rank, l.Mode) > slices.Index(rank, all[i].Mode):
				all[i] = l
			}
		}
	}
	return all
}
