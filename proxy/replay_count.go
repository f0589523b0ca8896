package proxy

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/view"
)

// maxReasons is the maximum number of reasons that are counted separately.
const maxReasons = 100

// maxTopKeys is the maximum number of keys of a limit that are counted at a time.
const maxTopKeys = 1 << 14

// A ReplayTally is the result of a Replay.
type ReplayTally struct {
	Requests int64     `json:"requests"`
	From     time.Time `json:"from,omitzero"` // time of the first request
	To       time.Time `json:"to,omitzero"`   // time of the last request
	Passed   int64     `json:"passed"`
	Refused  int64     `json:"refused"` // by limits
	Unknown  int64     `json:"unknown"` // passed, but a limit with an unknown key might have refused them
	Keys     int       `json:"keys"`    // number of keys in the store at the end, for all limits and rates
	// Unmatched counts the requests that match no route, by reason. RouteTally.Rejected counts
	// those that are refused before the limits are evaluated.
	Unmatched map[string]int64 `json:"unmatched,omitempty"`
	// Routes has the routes and their limits. The last one has no name if it has the limits of several
	// routes.
	Routes []RouteTally `json:"routes"`
	// Step is the length of the steps of every series. The first step begins at Start.
	Start time.Time     `json:"start,omitzero"`
	Step  time.Duration `json:"step_ns"`
}

// A RouteTally is the result for the requests of a route.
type RouteTally struct {
	Name     string           `json:"name"`
	Requests int64            `json:"requests"`
	Passed   int64            `json:"passed"`
	Refused  int64            `json:"refused"`
	Unknown  int64            `json:"unknown"` // passed, but a limit with an unknown key might have refused them
	Rejected map[string]int64 `json:"rejected,omitempty"`
	Listed   map[string]int64 `json:"listed,omitempty"` // by the list that decided
	Exempt   int64            `json:"exempt"`           // allowed without being counted: a bypass list or a preflight
	Waited   int64            `json:"waited"`           // waited for a permit
	Repeated int64            `json:"repeated"`         // repeats that are not counted
	Returned int64            `json:"returned"`         // requests whose permits were refunded
	Banned   int64            `json:"banned"`           // refusals that started a ban
	Unlisted int64            `json:"unlisted"`         // requests with an unknown key of some list
	Limits   []LimitTally     `json:"limits"`
	Series   ReplaySeries     `json:"series"`
}

// A LimitTally is the result of a limit.
type LimitTally struct {
	Name      string   `json:"name"`
	Routes    []string `json:"routes,omitempty"` // of a limit of several routes
	Key       string   `json:"key"`
	Mode      string   `json:"mode"`
	Algorithm string   `json:"algorithm"`
	Rates     []string `json:"rates"`
	Passed    int64    `json:"passed"`
	Refused   int64    `json:"refused"`
	Shadowed  int64    `json:"shadowed"` // would have been refused
	Skipped   int64    `json:"skipped"`  // the limit did not apply
	Unknown   int64    `json:"unknown"`  // the key is not in the log
	// Missing are the origins that the log lacks of the first such request, such as header:X-Phone, plan: and the
	// name of the limit for the plan of the key, or body.
	Missing []string `json:"missing,omitempty"`
	// Top are the keys with the most refusals, in descending order, masked. If there were too many
	// keys to count each, a count may be too low by up to TopError.
	Top      []ReplayKey  `json:"top"`
	TopError int64        `json:"top_error"`
	Series   ReplaySeries `json:"series"`
}

// A ReplayKey is a key with its number of refusals.
type ReplayKey struct {
	Key     string `json:"key"`
	Refused int64  `json:"refused"`
}

// A ReplaySeries has the counts of each time step.
type ReplaySeries struct {
	Passed  []int64 `json:"passed"`
	Refused []int64 `json:"refused"` // including those by limits in shadow mode
}

// tallies count the outcomes of the requests of a Replay.
type tallies struct {
	ReplayTally
	generation *generation
	topKeys    int                    // number of keys to report
	routes     map[string]*RouteTally // by name
	limits     map[string]*limitTally // by ID, as several routes may have one
}

// A limitTally accumulates a LimitTally.
type limitTally struct {
	LimitTally
	top *limiter.Sketch[string] // its keys by refusals, with their labels
}

// route returns the tally of a route.
func (t *tallies) route(r *route) *RouteTally {
	made := t.routes[r.Name]
	if made == nil {
		made = &RouteTally{Name: r.Name, Rejected: map[string]int64{}, Listed: map[string]int64{}, Limits: []LimitTally{}, Series: newSeries()}
		t.routes[r.Name] = made
		for _, l := range r.Active {
			if t.limits[l.ID] == nil {
				t.limits[l.ID] = newLimitTally(l)
			}
		}
	}
	return made
}

func newLimitTally(l *limit.Limit) *limitTally {
	tally := &limitTally{top: limiter.NewSketch[string](maxTopKeys), LimitTally: LimitTally{Name: l.Name, Routes: l.Routes, Key: l.Key.Name, Mode: string(l.Mode), Missing: []string{}, Series: newSeries()}}
	for _, w := range l.Windows {
		tally.Algorithm = w.Algorithm.String()
		tally.Rates = append(tally.Rates, w.Of.RateText(w.Written(w.Rate)))
	}
	return tally
}

// count counts one request that has been decided.
func (t *tallies) count(now time.Time, v *visit) {
	x := &v.x
	if t.Requests == 0 {
		t.From = now
		t.Start, t.Step = now.Truncate(time.Second), time.Second
	}
	t.Requests++
	t.To = now
	step := t.step(now)
	if x.route == nil {
		countReason(t.Unmatched, v.err)
		return
	}
	rt := t.route(x.route)
	rt.Requests++
	if x.list != nil {
		rt.Listed[x.list.Name]++
	}
	switch {
	case v.err == nil:
		t.Passed++
		rt.Passed++
		rt.Series.pass(step)
	case errors.Is(v.err, limit.ErrRefused):
		t.Refused++
		rt.Refused++
		rt.Series.refuse(step)
	case errors.Is(v.err, errDenied):
	default:
		countReason(rt.Rejected, v.err)
	}
	rt.countFlags(x, v.err)
	if !v.own && len(x.extracted.unlisted) > 0 {
		rt.Unlisted++
	}
	if t.countLimits(v, step) && v.err == nil {
		t.Unknown++
		rt.Unknown++
	}
}

// countFlags counts the other properties of a request.
func (r *RouteTally) countFlags(x *exchange, err error) {
	if x.Exempt && err == nil {
		r.Exempt++
	}
	if x.Waited {
		r.Waited++
	}
	if x.Repeated {
		r.Repeated++
	}
	if x.BanBegan {
		r.Banned++
	}
}

// countLimits counts the result of each limit. It reports whether a limit in enforce mode, with an unknown key,
// might have refused the request.
func (t *tallies) countLimits(v *visit, step int) (unknown bool) {
	x := &v.x
	evaluated := !x.Repeated && (v.err == nil || errors.Is(v.err, limit.ErrRefused))
	for _, of := range x.route.Active {
		l := t.limits[of.ID]
		if v.refusedBy != nil {
			if of == v.refusedBy {
				l.Refused++
				l.Series.refuse(step)
			}
			continue
		}
		if slices.Contains(x.extracted.unknown, of) {
			if evaluated && !x.Exempt {
				l.Unknown++
				unknown = unknown || of.Enforces()
			}
			continue
		}
		if !evaluated || of.IsShadow() && v.err != nil { // a refused request is not evaluated by limits in shadow mode
			continue
		}
		switch o, applies := x.outcomeOf(of); {
		case !applies:
			l.Skipped++
			continue
		case o.Allowed && o.Unknown:
			continue
		case o.Allowed:
			l.Passed++
			l.Series.pass(step)
			continue
		case of.IsShadow():
			l.Shadowed++
		default:
			l.Refused++
		}
		l.Series.refuse(step)
		if t.topKeys > 0 {
			if label := l.top.Observe(x.refusedKey(of)); label != nil {
				*label = v.label(of)
			}
		}
	}
	return unknown
}

// lack notes what the log lacks of limits that a request cannot be evaluated by.
func (t *tallies) lack(q *LoggedRequest, x *exchange) {
	for _, of := range x.extracted.unknown {
		if l := t.limits[of.ID]; len(l.Missing) == 0 {
			l.Missing = q.lacking(of, x)
		}
	}
}

// countReason counts why a request was refused before the limits were evaluated.
func countReason(by map[string]int64, err error) {
	text := err.Error()
	if _, known := by[text]; !known && len(by) >= maxReasons {
		text = "other reasons"
	}
	by[text]++
}

// result returns all counts.
func (t *tallies) result() ReplayTally {
	out := t.ReplayTally
	out.Routes = []RouteTally{}
	for _, r := range t.generation.routes {
		if rt := t.routes[r.Name]; rt != nil {
			out.Routes = append(out.Routes, t.resultOf(r, *rt))
		}
	}
	common := RouteTally{Series: newSeries()}
	for _, l := range t.generation.limits {
		if tally := t.limits[l.ID]; tally != nil && l.IsCommon() {
			common.Limits = append(common.Limits, tally.result(t.topKeys))
		}
	}
	if len(common.Limits) > 0 {
		out.Routes = append(out.Routes, common)
	}
	return out
}

// resultOf returns the counts of a route with those of its own limits.
func (t *tallies) resultOf(r *route, out RouteTally) RouteTally {
	for _, l := range r.Active {
		if !l.IsCommon() {
			out.Limits = append(out.Limits, t.limits[l.ID].result(t.topKeys))
		}
	}
	return out
}

func (l *limitTally) result(top int) LimitTally {
	out, seen := l.LimitTally, l.top.HeavyHitters()
	keys := view.Each(seen.Keys, func(h limiter.HeavyHitter[limiter.Key, string]) ReplayKey {
		return ReplayKey{Key: h.Value, Refused: h.Count - h.Error}
	})
	slices.SortFunc(keys, func(a, b ReplayKey) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Key, b.Key))
	})
	out.Top, out.TopError = keys[:min(top, len(keys))], seen.Floor
	return out
}

// outcomeOf returns the outcome of l for x, and whether l applies.
func (x *exchange) outcomeOf(l *limit.Limit) (o limiter.Outcome, applies bool) {
	refuses := func(s limit.Refusal) bool { return s.Window.Of == l }
	if l.IsShadow() {
		o.Allowed = !slices.Contains(x.Shadow.Errors, l) && !slices.ContainsFunc(x.Shadow.Refusals, refuses)
		return o, !o.Allowed || x.Shadow.Claims.IndexOf(l) >= 0
	}
	for of := range x.Claims.Decided(x.Decision.Outcomes) {
		if of.Limit == l && of.From < len(x.Decision.Outcomes) {
			return of.Outcome, true
		}
	}
	return o, false
}

// refusedKey returns the key for which l refused x, or would have.
func (x *exchange) refusedKey(l *limit.Limit) limiter.Key {
	for _, set := range []limit.ClaimSet{x.Claims, x.Shadow.Claims} {
		if i := set.IndexOf(l); i >= 0 {
			return set[i].Key
		}
	}
	return limiter.Key{}
}

// label returns the masked key of l.
func (v *visit) label(l *limit.Limit) string {
	if v.labels != nil {
		return v.labels[l]
	}
	return v.x.label(l)
}

func (x *exchange) label(l *limit.Limit) string {
	if k, found := x.extracted.logged.find(l.Key); found {
		if hashAlone.MatchString(k.Text) { // as in the field keys of the log
			return l.Key.Name + "=hash:" + k.Text
		}
		return l.Key.Name + "=" + k.Text
	}
	if err := l.Key.Extract(x, &x.extracted.value); err != nil {
		return "no valid key"
	}
	return x.extracted.value.Masked()
}

// labels returns the masked keys of all limits of x that apply.
func (x *exchange) labels() map[*limit.Limit]string {
	all := map[*limit.Limit]string{}
	for _, set := range []limit.ClaimSet{x.Claims, x.Shadow.Claims} {
		for i := range set {
			of := set.Window(i).Of
			all[of] = x.label(of)
		}
	}
	return all
}
