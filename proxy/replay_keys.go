package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
)

// errLoggedRejection reports that a request was rejected before its limits were evaluated, for a reason
// that its line in Weir's own log does not repeat.
var errLoggedRejection = errors.New("rejected in the log too")

// lineKeys are the keys of a replayed request that its line identifies; empty while serving.
type lineKeys struct {
	line loggedKeys
	overriddenKeys
}

// overriddenKeys are the keys of a route with overridden rates, by what lines have of them: a part of their
// hash if there is a secret, which all configurations share; otherwise the tag, because hashes are
// salted.
type overriddenKeys struct {
	privacy *config.Privacy
	byHash  map[limiter.Key]limiter.Key // nil without privacy.hash_secret
	byTag   map[string]limiter.Key
}

// newOverriddenKeys returns those of r.
func newOverriddenKeys(r *route, privacy *config.Privacy) overriddenKeys {
	all := overriddenKeys{privacy: privacy, byTag: map[string]limiter.Key{}}
	if privacy.HashSecret != "" {
		all.byHash = map[limiter.Key]limiter.Key{}
	}
	for _, l := range r.Active {
		for k := range l.ByKey {
			if all.byHash != nil {
				var id limiter.Key
				copy(id[:logKeyBytes], k[:])
				all.byHash[id] = k
			}
			all.byTag[l.Key.Name+overrideTag(k)] = k
		}
	}
	return all
}

// find returns the key that the line has for s.
func (l *lineKeys) find(s *key.Spec) (k limit.Key, found bool) {
	hash, tag, found := l.line.find(s.Name)
	if !found || hash == absentKey {
		return limit.Key{Spec: s, Skip: true}, found
	}
	if isCountry(hash) {
		return l.country(s, hash)
	}
	id, ok := parseLogKey(hash)
	if !ok {
		return limit.Key{}, false
	}
	k = limit.Key{Spec: s, Key: id, Previous: id, Unkeyed: id, Text: logName(id)}
	if l.byHash != nil {
		if full, is := l.byHash[id]; is {
			k.Key = full
		}
	} else if full, is := l.byTag[s.Name+tag]; is && tag != "" {
		k.Key = full
	}
	return k, true
}

// country returns the key of a country, which a line has as it is.
func (l *lineKeys) country(s *key.Spec, code string) (k limit.Key, found bool) {
	var v key.Value
	if _, err := s.Read(key.Input{Texts: map[string]string{s.Name: code}}, &v); err != nil {
		return limit.Key{}, false
	}
	k = limit.Key{Spec: s, Key: l.privacy.Hash(v.Parts), Unkeyed: config.Privacy{}.Hash(v.Parts), Text: code}
	k.Previous, _ = l.privacy.PreviousHash(v.Parts)
	return k, true
}

// findUnknown finds the limits and lists of the route of x of whose keys its line does not tell. A key is taken as its
// line identifies it unless the line has the values of all.
func (l *LoggedRequest) findUnknown(x *exchange, overridden overriddenKeys) {
	e := &x.extracted
	x.replayUsage(loggedKeys(l.Keys))
	known := func(of *limit.Limit) bool { return e.logged.line.hasNone() || l.knowsLimit(of, x) }
	if e.unknown = slices.DeleteFunc(append(e.unknown, x.route.Active...), known); len(e.unknown) > 0 && l.Keys != "" {
		e.logged = lineKeys{loggedKeys(l.Keys), overridden}
		e.unknown = slices.DeleteFunc(append(e.unknown[:0], x.route.Active...), known)
	}
	for _, list := range x.route.Lists {
		if !l.knowsValues(list.Key, x) {
			e.unlisted = append(e.unlisted, list.Key)
		}
	}
}

// knowsLimit reports whether a line has what is needed to evaluate a limit: of each key the values, or what
// identifies it.
func (l *LoggedRequest) knowsLimit(of *limit.Limit, x *exchange) bool {
	if (of.PlanKey() != nil || of.PlanList() != nil) && !l.knowsPlan(of, x) {
		return false
	}
	cost, prices := of.Charges()
	if cost != nil && !l.knowsCost(of, x) {
		return false
	}
	for _, read := range of.Reads() {
		switch p := read.Purpose; {
		case p == config.ForPlan, p == config.ForCost: // see above
		case p == config.ForPrice && l.knowsPrice(prices, x):
		case p == config.ForPrice, !l.knowsKey(read.Key, x):
			return false
		}
	}
	return true
}

// lacking returns what a line does not have of all that a limit reads: origins, plan: and the name of the limit, or the body.
func (l *LoggedRequest) lacking(of *limit.Limit, x *exchange) (all []string) {
	if cost, _ := of.Charges(); cost != nil && cost.Bytes > 0 && !l.HasBody && !l.knowsCost(of, x) {
		all = append(all, "body")
	}
	for _, read := range of.Reads() {
		switch p := read.Purpose; {
		case p == config.ForPlan && !l.knowsPlan(of, x):
			all = append(all, planPrefix+of.Name)
		case p == config.ForPlan, p != config.ForPrice && of.PlanList() == nil && l.knowsKey(read.Key, x):
		default:
			for _, o := range read.Key.Required() {
				if !l.knows(o, x) && !slices.Contains(all, o.String()) {
					all = append(all, o.String())
				}
			}
		}
	}
	return all
}

// knowsPlan reports whether a line has the plan under a limit, or the values of a key whose plan is in a
// list.
func (l *LoggedRequest) knowsPlan(of *limit.Limit, x *exchange) bool {
	_, found := x.extracted.logged.line.plan(of)
	return found || of.PlanKey() == nil && l.knowsUnhashed(of.Key, x)
}

// knowsPrice reports whether a line has what the request costs, or its number: no price is known of a hash.
func (l *LoggedRequest) knowsPrice(p *config.Prices, x *exchange) bool {
	_, found := x.extracted.logged.line.price(p)
	return found || l.knowsUnhashed(p.Key, x)
}

// knowsUnhashed reports whether the values of a key are read from the line, and not its hash.
func (l *LoggedRequest) knowsUnhashed(s *key.Spec, x *exchange) bool {
	_, hashed := x.extracted.logged.find(s)
	return !hashed && l.knowsValues(s, x)
}

func (l *LoggedRequest) knowsKey(s *key.Spec, x *exchange) bool {
	_, hashed := x.extracted.logged.find(s)
	return hashed || l.knowsValues(s, x)
}

// knowsValues reports whether a line has all values of which a key consists.
func (l *LoggedRequest) knowsValues(s *key.Spec, x *exchange) bool {
	return !slices.ContainsFunc(s.Required(), func(o key.Origin) bool { return !l.knows(o, x) })
}

// repeatLog decides about a request as its line says, where the line does not have what the
// configuration would decide by: the key of the list that decided, or of the limit that refused. decided is
// false if the stages have to decide.
func (v *visit) repeatLog(q *LoggedRequest) (decided bool, err error) {
	x := &v.x
	for _, l := range x.route.Lists {
		if q.List == l.Name && slices.Contains(x.extracted.unlisted, l.Key) {
			x.list = l
		}
	}
	for _, l := range x.extracted.unknown {
		if q.Limit == l.Name && l.Enforces() {
			v.refusedBy = l
			return true, limit.ErrRefused
		}
	}
	switch {
	case x.list != nil && x.list.Action.Refuses():
		return true, errDenied
	case q.Rejected && (x.route.Redirect == nil && x.route.Respond == nil || v.result().Status != q.Status):
		return true, fmt.Errorf("%w, with status %d", errLoggedRejection, q.Status)
	case q.Repeated && x.route.Idempotency != nil:
		x.Repeated = true
		return true, nil
	}
	return false, nil
}

// refusesAgain reports whether one of the limits that a line names, whose refusal the store repeated, would
// refuse x now. Then it is the decision, and no other limit is evaluated, as on the node.
func (r *Replay) refusesAgain(x *exchange, names string) bool {
	err := r.proxy.admitter.Store.Peek(context.Background(), x.Claims, &x.Decision)
	if err != nil || x.Decision.Allowed {
		return false
	}
	refused := false
	for i := range x.Decision.Outcomes {
		o := &x.Decision.Outcomes[i]
		if !slices.Contains(strings.Fields(names), x.Claims.Window(i).Of.Name) {
			*o = limiter.Outcome{Allowed: true, Unknown: true}
		}
		refused = refused || !o.Allowed
	}
	if refused {
		x.MergePrevious()
	}
	x.Decided = refused
	return refused
}

// maxSteps is the maximum number of time steps of a Replay.
const maxSteps = 240

func newSeries() ReplaySeries { return ReplaySeries{[]int64{}, []int64{}} }

func (s *ReplaySeries) pass(step int)   { s.Passed = incrementAt(s.Passed, step) }
func (s *ReplaySeries) refuse(step int) { s.Refused = incrementAt(s.Refused, step) }

// incrementAt returns counts with the count at step increased by one.
func incrementAt(counts []int64, step int) []int64 {
	for len(counts) <= step {
		counts = append(counts, 0)
	}
	counts[step]++
	return counts
}

// halve merges pairs of adjacent steps.
func (s *ReplaySeries) halve() { s.Passed, s.Refused = halved(s.Passed), halved(s.Refused) }

func halved(counts []int64) []int64 {
	joined := counts[:0]
	for i, n := range counts {
		if i%2 == 0 {
			joined = append(joined, n)
		} else {
			joined[i/2] += n
		}
	}
	return joined
}

// step returns the step of now, which must not be before the start. Steps are of one second first; their
// length is doubled whenever there would be more than maxSteps.
func (t *tallies) step(now time.Time) int {
	seconds := now.Unix() - t.Start.Unix() // a time.Duration ends after 292 years
	for seconds >= maxSteps*int64(t.Step/time.Second) {
		t.Step *= 2
		for _, rt := range t.routes {
			rt.Series.halve()
		}
		for _, l := range t.limits {
			l.Series.halve()
		}
	}
	return int(seconds / int64(t.Step/time.Second))
}
