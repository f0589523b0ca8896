package proxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/view"
)

// A keyTarget is one limit that counts by the key an operator has named.
type keyTarget struct {
	limit        *limit.Limit
	spec         *key.Spec // the key of the limit, or its replacement
	key          limiter.Key
	previous     limiter.Key // under the previous secret, if rotates
	rotates      bool
	byID         bool
	windows      []*limit.Window
	overridden   bool                // windows are those of the key alone
	planUnknown  bool                // the plan is that of each request, and no recent one is known
	redissonName string              // the name of the shared Redisson limiter; empty if it is not shared
	away         bool                // the store did not answer about the key
	done         limit.AppliedChange // by a change; zero if there is none
	standing     view.LimitStanding  // Unknown if the limit cannot be queried
	given        key.Input           // what determines the key; of one that was named by its id, as far as this node remembers it
}

// findTargets returns the limits selected by q: those that count by exactly the named key, and those
// that count by a part of it. Errors wrap ErrKeyQuery.
func (g *generation) findTargets(q view.KeyQuery, known func(hash string) (limiter.Key, bool)) ([]keyTarget, error) {
	given, err := g.given(q)
	if err != nil {
		return nil, err
	}
	id, byID, err := g.readID(q, known)
	if err == nil {
		q.Route, q.Limit, err = g.checkNames(q.Route, q.Limit)
	}
	if err != nil {
		return nil, err
	}
	var all []keyTarget
	var wrong error
	for _, l := range g.limits {
		if !l.IsNamed(q.Route, q.Limit) {
			continue
		}
		var t keyTarget
		found := false
		if byID {
			t, found = g.matchID(l, g.keyName(q.Pairs[0].Key), id)
		} else {
			var err error
			if t, found, err = g.matchValue(l, given); wrong == nil {
				wrong = err
			}
		}
		if found {
			all = append(all, t)
		}
	}
	switch {
	case len(all) > 0:
		return all, nil
	case wrong != nil:
		return nil, fmt.Errorf("%w: %w", view.ErrKeyQuery, wrong)
	}
	return nil, g.noTargetError(q, given)
}

// readID reads the value of a query if it is a key id or a hash in the log.
func (g *generation) readID(q view.KeyQuery, known func(hash string) (limiter.Key, bool)) (k limiter.Key, found bool, err error) {
	if len(q.Pairs) != 1 {
		return k, false, nil
	}
	if m := hashForm.FindStringSubmatch(q.Pairs[0].Value); m != nil {
		if k, found = known(m[1]); !found {
			return k, true, fmt.Errorf("%w: no recent request on this node had this key; give its value, or ask the node that logged it", view.ErrKeyQuery)
		}
		return k, true, nil
	}
	if k, found, err = g.redact.readKeyID(q.Pairs[0].Value); !found && cutID.MatchString(q.Pairs[0].Value) {
		err = fmt.Errorf("%w: %q is neither a whole id nor a whole hash; copy all of it", view.ErrKeyQuery, q.Pairs[0].Value)
	}
	return k, found, err
}

// newKeyTarget returns the target of a limit for the key k.
func newKeyTarget(l *limit.Limit, k limiter.Key) keyTarget {
	t := keyTarget{limit: l, key: k, windows: l.Windows}
	if own, ok := l.ByKey[k]; ok {
		t.windows, t.overridden = own, true
	}
	return t
}

// matchID returns the target of l for k, and reports whether l counts by a key of that name.
func (g *generation) matchID(l *limit.Limit, name string, k limiter.Key) (t keyTarget, found bool) {
	specs := append([]*key.Spec{l.Key}, l.Key.Replacements()...)
	i := slices.IndexFunc(specs, func(s *key.Spec) bool {
		return s.Name == name || name == key.ClientIP.String() && s.From.Source.IsAddress()
	})
	if i < 0 {
		return t, false
	}
	t = newKeyTarget(l, k)
	t.spec, t.standing.Masked, t.standing.Logged, t.byID = specs[i], specs[i].Name, specs[i].Name, true
	if l.HasKeyName {
		t.standing.Unknown = "the name of the shared Redisson limiter contains the value, which an id does not reveal; give the value"
	}
	t.redissonName = l.RedissonName
	return t, true
}

// matchValue returns the target of l for the given values, and reports whether l counts by them.
func (g *generation) matchValue(l *limit.Limit, given key.Input) (t keyTarget, found bool, err error) {
	var v key.Value
	r, err := l.Key.Read(given, &v)
	if errors.Is(err, key.ErrMissing) || err == nil && len(r.Names) != len(given.Texts) {
		return t, false, nil
	}
	if err != nil {
		return t, false, err
	}
	t = newKeyTarget(l, g.config.Privacy.Hash(v.Parts))
	t.given = given
	t.spec = l.Key
	t.standing.Derived, t.standing.Masked, t.standing.Logged = r.Derived, g.display().Value(&v), g.logDisplay().Value(&v)
	t.setPlan(l.PlanList().Name(&v))
	var valid bool
	if t.redissonName, valid = l.SharedName(v.Text()); !valid {
		return t, false, fmt.Errorf("%s: %w: it cannot be part of the name of a limiter", l.Key.Name, key.ErrInvalid)
	}
	if !l.IsShared() {
		t.previous, t.rotates = g.config.Privacy.PreviousHash(v.Parts)
	}
	return t, true, nil
}

// setPlan sets the plan of the key, unless it has rates of its own.
func (t *keyTarget) setPlan(name string) {
	p := t.limit.ByPlan[name]
	if p == nil || t.overridden {
		return
	}
	t.standing.Plan, t.windows, t.standing.Unknown = name, p.Windows, ""
	if len(p.Windows) == 0 {
		t.standing.Unknown = "its plan " + name + " has no limit"
	}
}

// claims returns the claims on the windows of t and, for a limit with a penalty, on its count of
// refusals; then the same under the previous secret.
func (t *keyTarget) claims() []limiter.Claim { return t.claimsOn(t.windows) }

func (t *keyTarget) claimsOn(windows []*limit.Window) []limiter.Claim {
	claims := t.limit.ClaimsUnder(t.key, windows, t.redissonName)
	if t.rotates {
		claims = append(claims, t.limit.ClaimsUnder(t.previous, windows, t.redissonName)...)
	}
	return claims
}

// display returns how keys are displayed to operators.
func (g *generation) display() key.Display { return key.Display{Address: g.redact.shownAddress} }

// logDisplay returns how keys are displayed where they are kept: in the process log and the audit trail.
func (g *generation) logDisplay() key.Display {
	return key.Display{Address: g.redact.shownAddress, All: true}
}

// noTargetError returns an error that says why no limit is selected by q.
func (g *generation) noTargetError(q view.KeyQuery, given key.Input) error {
	var names []string
	var joined *key.Spec // a joined key of which only some parts are given
	for _, l := range g.limits {
		if !l.IsNamed(q.Route, q.Limit) {
			continue
		}
		names = append(names, l.Key.Names()...)
		isOther := func(name string) bool { return name != l.Key.Name && !slices.Contains(leafNames(l.Key), name) }
		if l.Key.Join != nil && !slices.ContainsFunc(slices.Collect(maps.Keys(given.Texts)), isOther) {
			joined = l.Key
		}
	}
	chosen := map[bool]string{true: " among those of this route or name"}[q.Route+q.Limit != ""]
	if len(names) == 0 {
		return fmt.Errorf("%w: there is no limit%s, and so none counts by a key", view.ErrKeyQuery, chosen)
	}
	for name := range given.Texts {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%w: no limit counts by %q%s; write one of %s", view.ErrKeyQuery, name, chosen, joinNames(names))
		}
	}
	if joined != nil {
		return fmt.Errorf("%w: %s consists of several keys; give a value for each of %s", view.ErrKeyQuery, joined.Name, joinNames(leafNames(joined)))
	}
	return fmt.Errorf("%w: no limit counts by these keys together; give one of them, or all parts of a joined key", view.ErrKeyQuery)
}

// maxListed is the maximum number of names that an error lists.
const maxListed = 20

// joinNames returns the names in order and without duplicates.
func joinNames(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) > maxListed {
		names = append(names[:maxListed], "...")
	}
	return strings.Join(names, ", ")
}

func leafNames(s *key.Spec) (names []string) {
	for _, leaf := range s.Components() {
		names = append(names, leaf.Name)
	}
	return names
}
