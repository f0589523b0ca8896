package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
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
	secret := privacy.HashSecret
	if secret != "" {
		all.byHash = map[limiter.Key]limiter.Key{}
	}
	for _, l := range r.limits {
		for k := range l.overrides {
			if secret != "" {
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
func (l *lineKeys) find(s *key.Spec) (k extractedKey, found bool) {
	hash, tag, found := l.line.find(s.Name)
	if !found || hash == absentKey {
		return extractedKey{spec: s, skip: true}, found
	}
	if isCountry(hash) {
		return l.country(s, hash)
	}
	id, ok := parseLogKey(hash)
	if !ok {
		return extractedKey{}, false
	}
	k = extractedKey{spec: s, Key: id, previous: id, unkeyed: id, text: logName(id)}
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
func (l *lineKeys) country(s *key.Spec, code string) (k extractedKey, found bool) {
	var v key.Value
	if _, err := s.Read(key.Input{Texts: map[string]string{s.Name: code}}, &v); err != nil {
		return extractedKey{}, false
	}
	k = extractedKey{spec: s, Key: l.privacy.Hash(v.Parts), unkeyed: config.Privacy{}.Hash(v.Parts), text: code}
	k.previous, _ = l.privacy.PreviousHash(v.Parts)
	return k, true
}

// knowsLimit reports whether a line has what is needed to evaluate a limit: of each key the values, or what
// identifies it.
func (l *LoggedRequest) knowsLimit(of *limit, x *exchange) bool {
	if of.Plan != nil && !l.knowsPlan(of, x) {
		return false
	}
	for read := range of.Reads() {
		switch p := read.Purpose; {
		case p == config.ForPlan: // see above
		case p == config.ForPrice && l.knowsPrice(of.Prices, x), p == config.ForCost && l.knows(read.Key.From, x):
		case p == config.ForPrice, p == config.ForCost, !l.knowsKey(read.Key, x):
			return false
		}
	}
	return true
}

// looksPlansUp reports whether the plans of keys under l, if it has any, are all in its list.
func (l *limit) looksPlansUp() bool { return l.Plan == nil || l.Plan.List != nil }

// knowsPlan reports whether a line has the plan under a limit, or the values of a key whose plan is in a
// list.
func (l *LoggedRequest) knowsPlan(of *limit, x *exchange) bool {
	if _, found := x.extracted.logged.line.plan(of); found {
		return true
	}
	_, hashed := x.extracted.logged.find(of.Key)
	return !hashed && of.looksPlansUp() && l.knowsAll(of.Key.Required(), x)
}

// knowsPrice reports whether a line has what the request costs, or its number: no price is known of a hash.
func (l *LoggedRequest) knowsPrice(p *config.Prices, x *exchange) bool {
	if _, found := x.extracted.logged.line.price(p); found {
		return true
	}
	_, hashed := x.extracted.logged.find(p.Key)
	return !hashed && l.knowsAll(p.Key.Required(), x)
}

func (l *LoggedRequest) knowsKey(s *key.Spec, x *exchange) bool {
	if _, found := x.extracted.logged.find(s); found {
		return true
	}
	return l.knowsAll(s.Required(), x)
}

// loggedRefusal returns the limit of the route, with an unknown key, that refused the request according to
// its line: it refuses here too. It returns nil if there is none.
func (v *visit) loggedRefusal(q *LoggedRequest) *limit {
	for i, l := range v.route.route.limits {
		if q.Limit == l.Name && l.Mode == config.Enforce && v.skipped.has(i) {
			return l
		}
	}
	return nil
}

// loggedList returns the list of the route, with an unknown key, that decided about the request according
// to its line. It returns nil if there is none.
func (v *visit) loggedList(q *LoggedRequest) *config.List {
	first := len(v.route.limitOrigins)
	for i, s := range slices.Concat(v.route.lists, v.route.bodyLists) {
		for _, l := range s.lists {
			if q.List == l.Name && v.skipped.has(first+i) {
				return l
			}
		}
	}
	return nil
}

// repeatLog decides about a request as its line says, where the line does not have what the
// configuration would decide by. decided is false if the stages have to decide.
func (v *visit) repeatLog(q *LoggedRequest) (decided bool, err error) {
	x := &v.x
	if q.List != "" {
		x.list = v.loggedList(q)
	}
	if l := v.loggedRefusal(q); l != nil {
		v.refusedBy = l
		return true, errRefused
	}
	switch {
	case x.list != nil && x.list.Action.Refuses():
		return true, errDenied
	case q.Rejected && x.route.Redirect == nil && x.route.Respond == nil:
		return true, fmt.Errorf("%w, with status %d", errLoggedRejection, q.Status)
	case q.Repeated && x.route.Idempotency != nil:
		x.isRepeat = true
		return true, nil
	}
	return false, nil
}

// refusesAgain reports whether one of the limits that a line names, whose refusal the store repeated, would
// refuse x now. Then it is the decision, and no other limit is evaluated, as on the node.
func (r *Replay) refusesAgain(x *exchange, names string) bool {
	err := r.proxy.admitter.store.Peek(context.Background(), x.claims.claims, &x.decision)
	if err != nil || x.decision.Allowed {
		return false
	}
	refused := false
	for i := range x.decision.Outcomes {
		o := &x.decision.Outcomes[i]
		if !slices.Contains(strings.Fields(names), x.claims.windows[i].of.Name) {
			*o = limiter.Outcome{Allowed: true, Unknown: true}
		}
		refused = refused || !o.Allowed
	}
	if refused && x.bothSecrets {
		x.mergePrevious()
	}
	x.decided = refused
	return refused
}
