package proxy

import (
	"errors"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// maxReasons is the maximum number of reasons that are counted separately.
const maxReasons = 100

// tallies count the outcomes of the requests of a Replay.
type tallies struct {
	ReplayTally
	generation *generation
	topKeys    int // number of keys to report
	axis       axis
	routes     map[*replayRoute]*routeTally
	limits     map[string]*limitTally // by ID
}

// A routeTally accumulates a RouteTally.
type routeTally struct {
	RouteTally
	limits []routeLimitTally // indexed like the limits of the route
	series series
}

// A routeLimitTally is the tally of a limit of a route, which other routes may have too.
type routeLimitTally struct {
	of *limit
	*limitTally
}

// A limitTally accumulates a LimitTally.
type limitTally struct {
	LimitTally
	origins []string
	top     *topKeys
	series  series
}

func newTallies(g *generation, most int) *tallies {
	return &tallies{generation: g, topKeys: most, routes: map[*replayRoute]*routeTally{}, limits: map[string]*limitTally{}, ReplayTally: ReplayTally{Unmatched: map[string]int64{}}}
}

// route returns the tally of a route.
func (t *tallies) route(r *replayRoute) *routeTally {
	if made := t.routes[r]; made != nil {
		return made
	}
	made := &routeTally{RouteTally: RouteTally{Name: r.Name, Rejected: map[string]int64{}, Listed: map[string]int64{}}}
	for _, l := range r.route.limits {
		tally := t.limits[l.ID]
		if tally == nil {
			tally = newLimitTally(l)
			t.limits[l.ID] = tally
		}
		made.limits = append(made.limits, routeLimitTally{l, tally})
	}
	t.routes[r] = made
	return made
}

func newLimitTally(l *limit) *limitTally {
	tally := &limitTally{top: newTopKeys(), LimitTally: LimitTally{Name: l.Name, Routes: l.Routes, Key: l.Key.Name, Mode: string(l.Mode), Missing: []string{}}}
	for _, w := range l.windows {
		tally.Algorithm = w.Algorithm.String()
		tally.Rates = append(tally.Rates, RateText(w.of.Limit, w.Rate))
	}
	if !l.looksPlansUp() {
		tally.origins = append(tally.origins, planPrefix+l.Name)
	}
	for _, o := range l.origins() {
		tally.origins = append(tally.origins, o.String())
	}
	return tally
}

// count counts one request that has been decided.
func (t *tallies) count(now time.Time, v *visit) {
	x := &v.x
	if t.Requests == 0 {
		t.From = now
		t.axis.begin(now)
	}
	t.Requests++
	t.To = now
	step := t.step(now)
	if v.route == nil {
		countReason(t.Unmatched, v.err)
		return
	}
	rt := t.route(v.route)
	rt.Requests++
	if x.list != nil {
		rt.Listed[x.list.Name]++
	}
	switch {
	case v.err == nil:
		t.Passed++
		rt.Passed++
		rt.series.pass(step)
	case errors.Is(v.err, errRefused):
		t.Refused++
		rt.Refused++
		rt.series.refuse(step)
	case errors.Is(v.err, errDenied):
	default:
		countReason(rt.Rejected, v.err)
	}
	rt.countFlags(x, v.err)
	for i := range v.route.listOrigins {
		if !v.own && v.skipped.has(len(v.route.limitOrigins)+i) {
			rt.Unlisted++
			break
		}
	}
	unknown := t.countLimits(rt, v, step)
	if unknown && v.err == nil {
		t.Unknown++
		rt.Unknown++
	}
}

// countFlags counts the other properties of a request.
func (r *routeTally) countFlags(x *exchange, err error) {
	if x.exempt && err == nil {
		r.Exempt++
	}
	if x.waited {
		r.Waited++
	}
	if x.isRepeat {
		r.Repeated++
	}
	if x.banned {
		r.Banned++
	}
}

// countLimits counts the result of each limit. It reports whether a limit in enforce mode, with an unknown key,
// might have refused the request.
func (t *tallies) countLimits(rt *routeTally, v *visit, step int) (unknown bool) {
	x := &v.x
	evaluated := !x.isRepeat && (v.err == nil || errors.Is(v.err, errRefused))
	for i, l := range rt.limits {
		if v.refusedBy != nil {
			if l.of == v.refusedBy {
				l.Refused++
				l.series.refuse(step)
			}
			continue
		}
		if v.skipped.has(i) {
			if evaluated && !x.exempt {
				l.countUnknown()
				unknown = unknown || l.of.Mode == config.Enforce
			}
			continue
		}
		if !evaluated || l.of.Mode == config.Shadow && v.err != nil { // a refused request is not evaluated by limits in shadow mode
			continue
		}
		result, refused := x.resultOf(l.of), false
		switch {
		case result == resultUnknown:
			continue
		case result == resultNone:
			l.Skipped++
			continue
		case result == resultAllowed:
			l.Passed++
		case l.of.Mode == config.Shadow:
			l.Shadowed++
			refused = true
		default:
			l.Refused++
			refused = true
		}
		if !refused {
			l.series.pass(step)
			continue
		}
		l.series.refuse(step)
		if t.topKeys > 0 {
			l.top.add(x.refusedKey(l.of), func() string { return v.label(l.of) })
		}
	}
	return unknown
}

// countUnknown counts a request whose key is not in the log.
func (l *limitTally) countUnknown() {
	l.Unknown++
	if len(l.Missing) == 0 {
		l.Missing = l.origins
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
	out.Start, out.Step = t.axis.start, t.axis.step
	out.Routes = []RouteTally{}
	for _, r := range t.generation.routes {
		for from, rt := range t.routes {
			if from.Name == r.Name {
				out.Routes = append(out.Routes, rt.result(t.topKeys))
			}
		}
	}
	common := RouteTally{Series: (&series{}).result()}
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

func (r *routeTally) result(top int) RouteTally {
	out := r.RouteTally
	out.Series = r.series.result()
	out.Limits = []LimitTally{}
	for _, l := range r.limits {
		if !l.of.IsCommon() {
			out.Limits = append(out.Limits, l.result(top))
		}
	}
	return out
}

func (l *limitTally) result(top int) LimitTally {
	out := l.LimitTally
	out.Top, out.TopError = l.top.first(top)
	out.Series = l.series.result()
	return out
}

// The result of a limit for a request.
const (
	resultNone = iota // the limit does not apply
	resultAllowed
	resultRefused
	resultUnknown
)

// resultOf returns the result of l for x.
func (x *exchange) resultOf(l *limit) int {
	if l.Mode == config.Shadow {
		return x.shadowResultOf(l)
	}
	result := resultNone
	for i := range x.decision.Outcomes {
		if i >= len(x.claims) || x.claims.window(i).of != l {
			continue
		}
		o := &x.decision.Outcomes[i]
		switch {
		case !o.Allowed:
			return resultRefused
		case !o.Unknown:
			result = resultAllowed
		case result == resultNone:
			result = resultUnknown
		}
	}
	return result
}

// shadowResultOf returns the result of a limit in shadow mode.
func (x *exchange) shadowResultOf(l *limit) int {
	if slices.Contains(x.shadowErrors, l) {
		return resultRefused
	}
	if slices.ContainsFunc(x.shadowRefusals, func(s refusal) bool { return s.window.of == l }) {
		return resultRefused
	}
	if x.shadows.indexOf(l) >= 0 {
		return resultAllowed
	}
	return resultNone
}

// refusedKey returns the key for which l refused x, or would have.
func (x *exchange) refusedKey(l *limit) limiter.Key {
	for _, set := range []claimSet{x.claims, x.shadows} {
		if i := set.indexOf(l); i >= 0 {
			return set[i].Key
		}
	}
	return limiter.Key{}
}

// label returns the masked key of l.
func (v *visit) label(l *limit) string {
	if v.labels != nil {
		return v.labels[l]
	}
	return v.x.label(l)
}

func (x *exchange) label(l *limit) string {
	if k, found := x.extracted.logged.find(l.Key); found {
		if hashAlone.MatchString(k.text) { // as in the field keys of the log
			return l.Key.Name + "=hash:" + k.text
		}
		return l.Key.Name + "=" + k.text
	}
	if err := l.Key.Extract(x, &x.extracted.value); err != nil {
		return "no valid key"
	}
	return x.extracted.value.Masked()
}

// labels returns the masked keys of all limits of x that apply.
func (x *exchange) labels() map[*limit]string {
	all := map[*limit]string{}
	for _, set := range []claimSet{x.claims, x.shadows} {
		for i := range set {
			of := set.window(i).of
			all[of] = x.label(of)
		}
	}
	return all
}

// origins returns the origins that are needed to evaluate l, but for that of a plan; see looksPlansUp.
func (l *limit) origins() (all []key.Origin) {
	for read := range l.Reads() {
		if read.Purpose != config.ForPlan {
			all = append(all, read.Key.Required()...)
		}
	}
	return all
}

// A replayRoute is a route with its copies that skip limits and lists whose keys are not in the
// log.
type replayRoute struct {
	*route
	limitOrigins [][]key.Origin // origins by limit
	listOrigins  [][]key.Origin // origins by list lookup; those in the body are last
	copies       map[bitset]*route
	overridden   overriddenKeys
}

func newReplayRoute(r *route, privacy *config.Privacy) *replayRoute {
	made := &replayRoute{route: r, copies: map[bitset]*route{{}: r}, overridden: newOverriddenKeys(r, privacy)}
	for _, l := range r.limits {
		made.limitOrigins = append(made.limitOrigins, l.origins())
	}
	for _, s := range slices.Concat(r.lists, r.bodyLists) {
		made.listOrigins = append(made.listOrigins, s.key.Required())
	}
	return made
}

// withKnownKeys returns the route with only those limits and lists whose keys are in the log. unknown has
// those that are skipped, limits first. The usual case does not allocate. A key is taken as its line
// identifies it unless the line has the values of all.
func (r *replayRoute) withKnownKeys(q *LoggedRequest, x *exchange) (known *route, unknown bitset) {
	for i, places := range r.limitOrigins {
		if !q.knowsAll(places, x) || !r.route.limits[i].looksPlansUp() {
			unknown.set(i)
		}
	}
	if unknown != (bitset{}) && q.Keys != "" {
		x.extracted.logged = lineKeys{loggedKeys(q.Keys), r.overridden}
		unknown = bitset{}
		for i, l := range r.route.limits {
			if !x.extracted.logged.line.hasNone() && !q.knowsLimit(l, x) {
				unknown.set(i)
			}
		}
	}
	for i, places := range r.listOrigins {
		if !q.knowsAll(places, x) {
			unknown.set(len(r.limitOrigins) + i)
		}
	}
	if known = r.copies[unknown]; known == nil {
		known = r.copyWithout(unknown)
		r.copies[unknown] = known
	}
	return known, unknown
}

// knowsAll reports whether the log has the values at all places.
func (l *LoggedRequest) knowsAll(places []key.Origin, x *exchange) bool {
	for _, o := range places {
		if !l.knows(o, x) {
			return false
		}
	}
	return true
}

// copyWithout returns a copy of the route without some limits and lists.
func (r *replayRoute) copyWithout(unknown bitset) *route {
	made := *r.route
	made.limits = without(r.limits, 0, unknown)
	made.early = slices.DeleteFunc(slices.Clone(r.early), func(l *limit) bool { return !slices.Contains(made.limits, l) })
	made.lists = without(r.lists, len(r.limitOrigins), unknown)
	made.bodyLists = without(r.bodyLists, len(r.limitOrigins)+len(r.lists), unknown)
	return &made
}

// without returns those of all that unknown does not have, whose numbers begin with first.
func without[T any](all []T, first int, unknown bitset) (kept []T) {
	for i, one := range all {
		if !unknown.has(first + i) {
			kept = append(kept, one)
		}
	}
	return kept
}

// A bitset is a set of numbers from 0 to 255. Larger numbers are ignored.
type bitset [4]uint64

func (b *bitset) set(i int) {
	if i/64 < len(b) {
		b[i/64] |= 1 << (i % 64)
	}
}

func (b *bitset) has(i int) bool { return i/64 < len(b) && b[i/64]>>(i%64)&1 == 1 }
