package config

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// limits makes the limits of one route.
type limits struct {
	*routes
	route  *Route      // as it is written, without a name for the common limits
	params []string    // of the route's path
	read   []readRates // of the limit that is being compiled
}

// A readRates holds rates that bound the same requests, and where each of them stands.
type readRates struct {
	texts []*string
	rates []limiter.Rate
}

// all compiles the limits of the route: its own, the common ones that it names, and those of
// defaults.
func (l *limits) all(forms []*Limit) []*Limit {
	var made []*Limit
	shown := map[string]*Limit{}
	add := func(pointer any, limit *Limit) {
		if limit != nil {
			l.policies(pointer, limit, shown)
			made = append(made, limit)
		}
	}
	defaults := l.main.Defaults.Limits
	named := map[string]bool{}
	l.name(forms)
	for _, f := range forms {
		switch {
		case f.Named == none:
			defaults = nil
		case named[f.Named]:
			l.Wrong(f, f.Named+" is given twice", "write it once")
		case f.Named != "":
			named[f.Named] = true
			add(f, l.use(f, f.Named))
		default:
			f.Mode = l.mode(f)
			add(&f.Name, l.compile(f, f.Name))
		}
	}
	for i, name := range defaults {
		if name != "" && !named[name] {
			add(&defaults[i], l.use(&defaults[i], name))
		}
	}
	return made
}

// compile compiles the limit of one form, called name.
func (l *limits) compile(f *Limit, name string) *Limit {
	l.read = nil
	l.combine(f, limitRules())
	l.ownAlgorithm(f)
	f.OnStoreFailure = cmp.Or(f.OnStoreFailure, l.main.Defaults.OnStoreFailure)
	if f.ExposeForm == nil {
		f.ExposeForm = new(l.main.Defaults.Expose && !l.Given(&f.Budget)) // nobody's money is shown without being asked for
	}
	limit := new(*f)
	limit.form, limit.Position = f, l.Location(f).Position
	limit.Name, limit.Route, limit.ID = name, l.route.Name, l.id(f, name)
	limit.Cost = l.cost(f)
	limit.Mode, limit.Expose = l.mode(f), *f.ExposeForm
	l.wait(f, limit)
	limit.Scope = l.scope(f)
	limit.Key = l.keys.use(f.Of)
	l.parameters(f.Of, limit.Key)
	l.kind(f, limit)
	l.returnOn(f, limit)
	if l.Given(&f.ConversionForm) {
		limit.Algorithm, limit.Burst, limit.Conversion = limiter.Conversion, 0, int(l.percentage(&f.ConversionForm, 100, ", for example 35%"))
	}
	l.stepUp(f, limit)
	l.redisson(f, limit)
	l.refuse([]finding{
		{limit.RateFrom != "" && len(limit.Rates) > 1, &f.RateFrom, "the one rate of a descriptor would replace " + strconv.Itoa(len(limit.Rates)) + " rates", "write one rate, and the others in limits of their own"},
		{f.Count != nil && len(f.Count.Status) == 0 && l.Valid(f.Count), f.Count, "no status is given", "write for example {status: [4xx]}, or leave count out for all"},
	})
	limit.Ahead = l.lease(f, limit)
	l.warnRedundant(limit)
	l.penalty(f, limit)
	l.warnNoStore(&f.OnStoreFailure)
	if a := limit.Algorithm; a.HasConversion() || a.HasValues() || a.HasLeases() || a.HasSteps() || limit.Prices != nil {
		f.AlgorithmForm = "" // another field says it
	}
	l.compiled = append(l.compiled, limit)
	return limit
}

// kind reads what a limit counts, and how much of it.
func (l *limits) kind(f, limit *Limit) {
	switch {
	case l.Given(&f.Concurrent):
		limit.Algorithm = limiter.Concurrent
		if f.Concurrent > 0 {
			limit.Rates = []limiter.Rate{{Count: int64(f.Concurrent), Window: Lease}}
		}
	case l.Given(&f.Steps):
		l.cooldown(f, limit)
	case l.Given(&f.Budget):
		l.budget(f, limit)
	default:
		limit.Rates = l.rates(f, limit, "write rate: COUNT/WINDOW, for example 5/1m, or concurrent: COUNT, or cooldown: [1m, 5m]")
		l.algorithm(f, limit)
		l.distinct(f, limit)
		l.overrides(f, limit)
		l.plans(f, limit)
	}
}

// parameters checks that the route's path has what the key is read from. Of a common limit
// each route is checked that names it.
func (l *limits) parameters(pointer any, spec *key.Spec) {
	if l.route.Name != "" {
		l.routes.parameters(pointer, spec, l.params)
	}
}

// parameters checks that the route's path has what the key is read from.
func (r *routes) parameters(pointer any, spec *key.Spec, has []string) {
	for _, name := range missing(spec, has) {
		stands := "{" + name + "}"
		if name == "*" {
			stands = "/*"
		}
		r.Wrong(pointer, "the key is read from path:"+name+", but the route's path has no "+stands, "write "+stands+" where it stands in match.path")
	}
}

// policies checks that clients can tell the rates of a route apart: those of a
// limit with several are called LIMIT-WINDOW. The limit is named at pointer.
func (l *limits) policies(pointer any, limit *Limit, shown map[string]*Limit) {
	for _, rates := range limit.allRates() {
		for _, rate := range rates {
			name := limit.Name
			if len(rates) > 1 {
				name += "-" + limiter.WindowName(rate.Window)
			}
			if other := shown[name]; other != nil && other != limit && l.Valid(pointer) {
				l.Wrong(pointer, "two rates of this route are shown as "+name, "give one of the limits another name")
			}
			shown[name] = limit
		}
	}
}

// allRates returns the rates of l, then those of its overrides.
func (l *Limit) allRates() [][]limiter.Rate {
	return slices.Concat([][]limiter.Rate{l.Rates}, slices.Collect(maps.Values(l.Overrides)), slices.Collect(maps.Values(l.Plans)))
}

// name gives each limit of the route without a name that of its key.
func (l *limits) name(forms []*Limit) {
	taken := map[string]bool{}
	for _, f := range forms {
		if f.Named != "" || !l.token(&f.Name, f.Name) {
			continue
		}
		if taken[f.Name] {
			l.Wrong(&f.Name, "two limits of this route are called "+f.Name, "give one of them another name")
		}
		taken[f.Name] = true
		l.notCommon(&f.Name, f.Name)
	}
	for _, f := range forms {
		if f.Named != "" || f.Name != "" || f.Of == nil {
			continue
		}
		base := tokenOf(cmp.Or(l.keys.longName(f.Of.Text), f.Of.From, strings.Join(f.Of.Join, "-")), "limit")
		name := base
		for i := 2; taken[name]; i++ {
			name = base + "-" + strconv.Itoa(i)
		}
		if name != base {
			l.Warn(f, "has no name and is called "+name+" for its place among the limits on this key", "give it a name, so that its counts stay its own when limits are added")
		}
		f.Name, taken[name] = name, true
		l.notCommon(f, name)
	}
}

// notCommon checks that a limit of the route is not called as a common one is.
func (l *limits) notCommon(pointer any, name string) {
	if other := l.main.LimitForms[name]; other != nil {
		l.Wrong(pointer, "is called "+name+", as the limit at "+l.NameAt(other).String()+" is", "give one of them another name, or write "+name+" alone for the count that other routes have too")
	}
}

// rates reads rate or rates of f, a pointer to the form of a limit or of step_up; without either it reports what to write instead.
func (l *limits) rates(f any, limit *Limit, instead string) []limiter.Rate {
	one, several := form.Field(f, "rate").(*string), form.Field(f, "rates").(*list)
	l.refuse([]finding{
		{l.Given(one) && l.Given(several), one, "has both rate and rates", "write all of them under rates"},
		{!l.Given(one) && !l.Given(several), f, "has no rate", instead},
	})
	return l.parse(append([]*string{one}, pointers(*several)...), limit)
}

// pointers returns those to all texts of a list.
func pointers(texts list) []*string {
	all := make([]*string, len(texts))
	for i := range texts {
		all[i] = &texts[i]
	}
	return all
}

// parse reads rates, no two of one window.
func (l *limits) parse(texts []*string, limit *Limit) []limiter.Rate {
	var made []limiter.Rate
	var read []*string
	for _, text := range texts {
		if *text == "" {
			continue // absent, or already reported
		}
		rate, err := limit.rate(*text)
		if err != nil {
			l.fault(text, err)
			continue
		}
		if i := slices.IndexFunc(made, func(r limiter.Rate) bool { return r.Window == rate.Window }); i >= 0 {
			l.Wrong(text, limit.writtenRate(rate)+" has the same window as "+limit.writtenRate(made[i]), "keep the smaller one")
			continue
		}
		made, read = append(made, rate), append(read, text)
	}
	l.read = append(l.read, readRates{read, made})
	return made
}

// scope parses the scope of a limit.
func (l *limits) scope(f *Limit) limiter.Scope {
	scope, _ := limiter.ParseScope(f.ScopeForm) // one of the enum, or already reported
	apart, inMemory := scope != limiter.Overall, l.main.Store != StoreRedis
	l.warn([]finding{
		{apart && inMemory, &f.ScopeForm, "with store: memory each node counts for itself anyway", "leave it out"},
		{apart && !inMemory, &f.ScopeForm, "each node allows the full rate, so N nodes allow N times the rate", "write overall, which limits all nodes together"},
	})
	return scope
}

const (
	// longestWait bounds how long a request may wait: clients and proxies before
	// Weir give up sooner or later.
	longestWait = time.Minute
	// shortestLease is long enough that a call that takes permits ahead pays.
	shortestLease = 10 * time.Millisecond
	// crowd is how many requests of a key may wait where the file does not say.
	crowd = 100
)

// wait checks how long requests may wait for a permit, and how many.
func (l *limits) wait(f, limit *Limit) {
	switch {
	case !l.Given(&f.Wait):
		return
	case l.Given(&f.Concurrent): // already reported
	case f.Wait > longestWait:
		l.Wrong(&f.Wait, "is longer than clients wait", "write at most 1m")
	case limit.Mode != Enforce:
		l.Warn(&f.Wait, "wait has no effect while mode is "+string(limit.Mode), "leave it out until the mode is enforce")
	}
	limit.MaxWaiting = cmp.Or(f.MaxWaiting, crowd)
}

// lease reads for how long a node may take permits ahead.
func (l *limits) lease(f, limit *Limit) time.Duration {
	if !l.Given(&f.Ahead) {
		return 0
	}
	shortest, longest, least := limiter.MaxWindow, time.Duration(0), int64(limiter.MaxCount)
	for _, rate := range slices.Concat(limit.allRates()...) {
		shortest, longest, least = min(shortest, rate.Window), max(longest, rate.Window), min(least, rate.Count)
	}
	l.refuse([]finding{
		{0 < f.Ahead && f.Ahead < shortestLease, &f.Ahead, "is shorter than some calls of Redis", "write " + limiter.WindowName(shortestLease) + " or more, for example 100ms"},
		{f.Ahead > shortest/10, &f.Ahead, "more than a tenth of the rate could be refused too early", "write at most a tenth of the window, " + limiter.WindowName(shortest/10)},
		{longest > limiter.MaxWindow-f.Ahead, &f.Ahead, "the store counts for as long as a window and the lease, at most 366d", "write a shorter window"},
	})
	l.warn([]finding{
		{limit.Scope != limiter.Overall, &f.Ahead, "a node with the full rate shares no count", "leave it out"},
		{least < 10, &f.Ahead, "nothing is taken ahead of a rate of " + strconv.FormatInt(least, 10) + ": each node needs 10 permits of a window", "leave it out"},
	})
	if l.main.Store != StoreRedis {
		return 0 // a memory is not called over a network
	}
	return f.Ahead
}

// A Read is a key that a route reads of its requests.
type Read struct {
	Key     *key.Spec
	Purpose Purpose
	Mode    Mode // of the limit that reads it; Enforce if it is not read by a limit
}

// A Purpose is what a key is read for.
type Purpose uint8

// The purposes of a Read.
const (
	ForKey      Purpose = iota // a limit counts by it
	ForDistinct                // a limit counts its values
	ForSubject                 // return_on returns permits by it
	ForPrice                   // it is the number that a budget pays for
	ForStepUp                  // a token of step_up is bound to it
	ForCost                    // it is how many permits a request takes
	ForPlan                    // it is the name of a plan
	ForList                    // its values are listed
	ForBalance                 // hash balancing selects the target by it
)

// Counts reports whether each value of such a key has a count of its own, or is counted.
func (p Purpose) Counts() bool { return p == ForKey || p == ForDistinct }

// Reads returns all keys that l reads. Whoever treats them alike, or some of them, asks this method.
func (l *Limit) Reads() (all []Read) {
	prices, stepUp := cmp.Or(l.Prices, &Prices{}), cmp.Or(l.StepUp, &StepUp{})
	for purpose, s := range [...]*key.Spec{
		ForKey: l.Key, ForDistinct: l.Distinct, ForSubject: l.Subject(), ForPrice: prices.Key, ForStepUp: stepUp.Key, ForPlan: l.Plan.Name,
	} {
		if s != nil {
			all = append(all, Read{s, Purpose(purpose), l.Mode})
		}
	}
	if l.Cost != nil {
		all = slices.Concat(all, view.Each(l.Cost.From, func(s *key.Spec) Read { return Read{s, ForCost, l.Mode} }))
	}
	return all
}

func (l *List) read() Read { return Read{l.Key, ForList, Enforce} }

// Reads returns all keys that r reads: those of its limits, also of limits that are off, of its lists and of
// its upstream.
func (r *Route) Reads() (all []Read) {
	all = slices.Concat(view.Each(r.Limits, (*Limit).Reads)...)
	all = slices.Concat(all, view.Each(r.Lists, (*List).read))
	if r.Upstream != nil && r.Upstream.HashBy != nil {
		all = append(all, Read{r.Upstream.HashBy, ForBalance, Enforce})
	}
	return all
}
