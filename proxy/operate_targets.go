package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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

// maxDeferred is the maximum number of changes that wait for the store.
const maxDeferred = 1000

// A deferredChange is a change of one limit that was made while the store was unreachable, and that
// waits for it.
type deferredChange struct {
	limiter.Change
	claims []limiter.Claim
	limit  string // by its full name
	hash   string // of the key in the log
	at     time.Time
	until  time.Time // when it has no effect any more
	of     *deferral
}

// A deferral is what becomes of the parts of one operator's change that wait for the store.
type deferral struct {
	left atomic.Int32 // parts that wait
	lost atomic.Bool  // some part had no effect any more, or could not be applied
}

// settled reports whether no part of d waits any more, and whether none was lost.
func (d *deferral) settled() (settled, everywhere bool) { return d.left.Load() == 0, !d.lost.Load() }

// deferredChanges are the changes that wait for the store, oldest first. They are lost if the process
// ends before the store is reachable again.
type deferredChanges struct {
	applying sync.Mutex // held by ApplyDeferred

	mu      sync.Mutex // guards what follows; never held over I/O
	waiting []deferredChange
}

// add adds c as a part of a change, and reports whether there was room.
func (d *deferredChanges) add(c deferredChange, of *deferral) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) >= maxDeferred {
		return false
	}
	c.of = of
	of.left.Add(1)
	d.waiting = append(d.waiting, c)
	return true
}

// first returns the oldest change.
func (d *deferredChanges) first() (c deferredChange, found bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 {
		return c, false
	}
	return d.waiting[0], true
}

// has reports whether a change of k waits.
func (d *deferredChanges) has(k limiter.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.waiting, func(c deferredChange) bool { return slices.Contains(limit.KeysOf(c.claims), k) })
}

// removeFirst removes the oldest change.
func (d *deferredChanges) removeFirst() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = slices.Delete(d.waiting, 0, 1)
}

// deferChange returns c for the limit of t as a change that waits for the store. The time of a ban ends when
// it says; a reset or a grant is about permits that were taken before it, which come back by themselves.
func (g *generation) deferChange(t *keyTarget, c limiter.Change, claims []limiter.Claim) deferredChange {
	now := time.Now()
	d := deferredChange{
		Change: c, claims: claims, limit: t.limit.FullName(), hash: g.redact.KeyHash(t.key), at: now, until: now.Add(c.Ban),
	}
	if c.Action != limiter.ActionBan {
		for _, claim := range claims {
			if ends := now.Add(claim.Limit.Rate.Window); ends.After(d.until) {
				d.until = ends
			}
		}
	} else if c.Ban == 0 {
		d.until = now.Add(limiter.MaxWindow) // no ban is longer
	}
	return d
}

// ApplyDeferred applies the changes that were made while the store was unreachable, in their order, as far
// as their time is not over: a ban lasts as long as it would have. It returns at once if nothing waits or another
// call applies them, and at the first failure; it is to be called again then.
func (p *Proxy) ApplyDeferred(ctx context.Context) {
	d := &p.deferred
	if !d.applying.TryLock() {
		return
	}
	defer d.applying.Unlock()
	for c, found := d.first(); found; c, found = d.first() {
		rest := time.Until(c.until)
		var err error
		if rest > 0 {
			err = p.applyDeferred(ctx, c, rest)
			if errors.Is(err, limiter.ErrUnavailable) {
				return
			}
			if err != nil {
				p.log.Warn().Err(err).Str("action", string(c.Action)).Str("key_hash", c.hash).Str("limit", c.limit).Msg("key change not applied")
			}
		}
		d.removeFirst()
		if err != nil || rest <= 0 {
			c.of.lost.Store(true)
		}
		c.of.left.Add(-1)
		p.log.Info().Str("action", string(c.Action)).Str("key_hash", c.hash).Str("limit", c.limit).Bool("expired", rest <= 0).
			Float64("waited_s", time.Since(c.at).Seconds()).Msg("deferred key change")
	}
}

// applyDeferred applies c under the limits as they are configured now; those that were removed are left out.
func (p *Proxy) applyDeferred(ctx context.Context, c deferredChange, rest time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, operateTimeout)
	defer cancel()
	if c.Ban > 0 {
		c.Ban = rest.Truncate(time.Millisecond) + time.Millisecond
	}
	claims := p.current.Load().configured(c.claims)
	if len(claims) == 0 {
		return nil
	}
	if _, err := p.admitter.ApplyToStore(ctx, c.Change, claims); err != nil {
		return err
	}
	if p.admitter.Announcer != nil {
		_ = p.admitter.Announce(ctx, c.Change, claims) // on failure other nodes miss it only in their fallbacks
	}
	return nil
}

// configured returns claims with the limits of g in place of those of an earlier generation.
func (g *generation) configured(claims []limiter.Claim) (all []limiter.Claim) {
	for _, k := range limit.KeysOf(claims) {
		c := limiter.Change{Key: k}
		for _, claim := range claims {
			c.Limits = append(c.Limits, claim.Limit.Name)
		}
		now, _ := g.claimsOf(c)
		for _, n := range now {
			i := slices.IndexFunc(claims, func(was limiter.Claim) bool { return was.Key == k && was.Limit.Name == n.Limit.Name })
			if i >= 0 {
				was := claims[i]
				was.Limit = n.Limit
				all = append(all, was)
			}
		}
	}
	return all
}

// logLostChanges logs the changes that still wait.
func (p *Proxy) logLostChanges() {
	d := &p.deferred
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.waiting {
		line := p.log.Warn().Str("action", string(c.Action)).Str("key_hash", c.hash).Str("limit", c.limit)
		if rest := time.Until(c.until); c.Ban > 0 && rest > 0 {
			line = line.Str("for", limiter.FormatDuration(rest.Round(time.Second)))
		}
		line.Msg("key change lost; redis was not reachable again before this node ended")
	}
}
