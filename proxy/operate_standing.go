package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/view"
)

// Standing returns the state of a key without taking permits. Errors wrap ErrKeyQuery. If the store
// is unreachable, it returns the state in this node's fallback and no error.
func (p *Proxy) Standing(ctx context.Context, q view.KeyQuery) (view.KeyStanding, error) {
	g := p.current.Load()
	_, isNetwork, err := p.NetworkOf(q)
	if err != nil {
		return view.KeyStanding{}, err
	}
	targets, err := p.findTargets(g, q)
	networks := p.bansOf(g, q, targets)
	if err != nil && len(networks) == 0 && !isNetwork {
		return view.KeyStanding{}, err
	}
	s, err := p.standing(ctx, g, targets)
	s.Networks, s.Denied, s.Chosen = networks, p.denialsOf(g, q, targets), q.Route+q.Limit != ""
	return s, err
}

func (p *Proxy) standing(ctx context.Context, g *generation, targets []keyTarget) (view.KeyStanding, error) {
	ctx, cancel := context.WithTimeout(ctx, operateTimeout)
	defer cancel()
	s := view.KeyStanding{Limits: []view.LimitStanding{}}
	a, repeated := p.admitter, false
	for i := range targets {
		t := &targets[i]
		g.describe(t)
		if t.standing.Unknown != "" {
			s.Limits = append(s.Limits, t.standing)
			continue
		}
		t.standing.Store = string(g.config.Store)
		in, err := limiter.Inspection{}, error(limit.ErrStoreUnreachable)
		if t.away = t.away || p.isAway(targets[:i], t.key); !t.away {
			in, err = a.Store.Inspect(ctx, t.claims())
		}
		repeated = repeated || in.Repeated || t.done.Repeated
		if errors.Is(err, limiter.ErrUnavailable) {
			t.away = true
			in, err = p.inspectHere(ctx, t)
		}
		if err != nil {
			return view.KeyStanding{}, fmt.Errorf("inspect key: %w", err)
		}
		if in.At.After(s.At) {
			s.At = in.At
		}
		t.fill(in)
		s.Limits = append(s.Limits, t.standing)
	}
	s.At = cmp.Or(s.At, time.Now())
	s.Notes = p.notes(g, targets, s.Limits)
	if repeated {
		s.Notes = append(s.Notes, "redis timed out, asked again")
	}
	return s, nil
}

// isAway reports whether the store is known to be unreachable for k, so that it need not be waited for.
func (p *Proxy) isAway(targets []keyTarget, k limiter.Key) bool {
	return p.storeAway() || slices.ContainsFunc(targets, func(t keyTarget) bool { return t.away && t.key == k })
}

// storeAway reports whether the store is known to be unreachable.
func (p *Proxy) storeAway() bool {
	s := p.admitter.Fallback.Store
	return s != nil && !s.Available() && !s.Settling()
}

// operateTimeout bounds the duration of querying or changing a key.
const operateTimeout = 5 * time.Second

// describe sets the configured properties of t.
func (g *generation) describe(t *keyTarget) {
	l, w, s := t.limit, t.limit.Windows[0], &t.standing
	s.Route, s.Limit, s.Key, s.Hash, s.ID = l.Route, l.Name, t.spec.Name, g.redact.KeyHash(t.key), g.redact.KeyID(t.key)
	s.Mode, s.Algorithm, s.Scope, s.Java = string(l.Mode), w.Algorithm.String(), w.Scope.String(), l.IsShared()
	s.Costs, s.Windows = l.Cost != nil || l.AmountText() != nil, []view.WindowStanding{}
}

// fill sets the state of t's claims. For a key that is counted under two secrets, the stricter
// state is used.
func (t *keyTarget) fill(in limiter.Inspection) {
	to := &t.standing
	if to.Unknown != "" {
		return
	}
	own := in.Statuses
	if t.rotates {
		own = slices.Clone(own[:len(own)/2])
		for i, previous := range in.Statuses[len(own):] {
			own[i] = stricter(own[i], previous)
		}
	}
	var banned time.Duration
	for i, w := range t.windows {
		s := own[i]
		banned = max(banned, s.BannedFor)
		if s.Unreadable {
			s.Allowed = s.Capacity
		}
		to.Windows = append(to.Windows, view.WindowStanding{
			Name: w.LogName, Rate: w.Of.RateText(w.Written(s.Rate)), Most: s.Allowed, Used: s.Used, Left: s.Remaining,
			Next: after(in.At, s.NextIn), Full: after(in.At, s.FullIn), Overflow: s.Overflow, Unreadable: s.Unreadable,
		})
		shown := &to.Windows[i]
		if w.Algorithm.HasConversion() && !s.Unreadable {
			shown.Conversion, shown.Left = &view.ConversionStanding{Allowed: s.Allowed, Confirmed: s.Confirmed}, max(s.Allowed-s.Used, 0)
		}
		if i < len(t.done.Granted) {
			shown.Granted = t.done.Granted[i]
		}
		shown.Amounts = amountsOf(*shown, w.Of)
	}
	to.BannedUntil = after(in.At, banned)
	if p := t.limit.Penalty; p != nil && len(own) > len(t.windows) {
		to.Penalty = &view.PenaltyStanding{Refused: own[len(t.windows)].Used, After: p.After, Ban: view.Span(p.Ban)}
	}
}

// after returns the time d after at, or the zero Time if d is not positive.
func after(at time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return at.Add(d)
}

// stricter merges two states of one key. A limit is reached if it is reached in either.
func stricter(a, b limiter.KeyStatus) limiter.KeyStatus {
	a.Used, a.Remaining = max(a.Used, b.Used), min(a.Remaining, b.Remaining)
	a.Allowed, a.Confirmed = min(a.Allowed, b.Allowed), min(a.Confirmed, b.Confirmed)
	a.NextIn, a.FullIn, a.BannedFor = max(a.NextIn, b.NextIn), max(a.FullIn, b.FullIn), max(a.BannedFor, b.BannedFor)
	a.Overflow, a.Unreadable = a.Overflow || b.Overflow, a.Unreadable || b.Unreadable
	return a
}

// inspectHere returns the state of a key in the local store while the shared store is unreachable.
func (p *Proxy) inspectHere(ctx context.Context, t *keyTarget) (limiter.Inspection, error) {
	to := &t.standing
	to.Store = "local"
	if !t.limit.IsLocal() {
		to.Store, to.Unknown = "", "redis is unreachable; meanwhile the limit follows on_store_failure: "+string(t.limit.OnStoreFailure)
		to.Denies = t.limit.OnStoreFailure == config.Deny
		return limiter.Inspection{At: time.Now()}, nil
	}
	f := p.admitter.Fallback
	return f.Local.Inspect(ctx, f.Shares(t.claims()))
}

// notes returns hints that apply to more than one limit.
func (p *Proxy) notes(g *generation, targets []keyTarget, limits []view.LimitStanding) (notes []string) {
	if slices.ContainsFunc(limits, func(l view.LimitStanding) bool { return l.Store == "local" }) {
		notes = append(notes, "redis is unreachable: this is the state in this node's fallback, with its share of each limit")
	} else if store := p.admitter.Fallback.Store; store != nil && !store.Available() {
		notes = append(notes, "redis was unreachable: nodes decide by their shares until all have reported")
	}
	if slices.ContainsFunc(limits, func(l view.LimitStanding) bool { return l.Scope == limiter.PerClient.String() }) {
		notes = append(notes, "limits of scope per_instance are counted by each node separately: this is the state on this node")
	}
	for _, t := range targets {
		if t.planUnknown {
			notes = append(notes, fmt.Sprintf("under %s a request says its plan, by %s; none with this key is known to this node, so these are the rates without a plan", t.limit.FullName(), t.limit.PlanKey().From))
		}
	}
	if g.config.Privacy.Rotates && slices.ContainsFunc(targets, func(t keyTarget) bool { return !t.rotates && !t.limit.IsShared() }) {
		notes = append(notes, "privacy.previous_secret is set: counts under the previous secret are shown and changed only if the key is given by its value")
	}
	return notes
}

// amountsOf returns the numbers of w under l; nil if they are plain ones.
func amountsOf(w view.WindowStanding, l *limit.Limit) *view.Amounts {
	text := l.AmountText()
	switch {
	case l.Algorithm.HasSteps() && !w.Unreadable:
		return &view.Amounts{Used: "step " + strconv.FormatInt(w.Used, 10), Left: strconv.FormatInt(w.Left, 10)}
	case text == nil:
		return nil
	}
	a := &view.Amounts{Most: text(w.Most), Used: text(w.Used), Left: text(w.Left)}
	if w.Granted > 0 {
		a.Granted = text(w.Granted)
	}
	return a
}

// ErrorText returns err for operators. Of an error about a store that cannot be reached it says why that is, whatever was to
// be done: "redis is unreachable: no answer in time". Of no error it is empty.
func ErrorText(err error) string {
	if why, is := Unreachable(err); is || err == nil {
		return why
	}
	return err.Error()
}

// Unreachable returns that the store cannot be reached, and why, if err is about that.
func Unreachable(err error) (text string, is bool) {
	away, isNet := errors.AsType[net.Error](err)
	at, isOp := errors.AsType[*net.OpError](err)
	switch {
	case isNet && away.Timeout():
		return "redis is unreachable: no answer in time", true
	case isNet && isOp:
		return "redis is unreachable: " + at.Err.Error(), true
	case isNet:
		return "redis is unreachable: " + away.Error(), true
	case errors.Is(err, limiter.ErrUnavailable):
		_, cause, _ := strings.Cut(err.Error(), limiter.ErrUnavailable.Error()+": ")
		if errors.Is(err, limiter.ErrUnreadable) {
			return cause, true
		}
		return strings.TrimSuffix("redis is unreachable: "+cause, ": "), true
	}
	return "", false
}

// Now returns whether requests with the key of c are refused, as a sentence that follows the change.
func (p *Proxy) Now(ctx context.Context, c view.KeyChange) view.KeyVerdict {
	s, err := p.Standing(ctx, view.KeyQuery{Pairs: c.Pairs})
	if err != nil {
		return view.KeyVerdict{Text: "not known whether it is refused: " + ErrorText(err)}
	}
	if len(s.Limits)+len(s.Networks) == 0 { // c is about a network
		return view.KeyVerdict{Text: "not refused: no network is banned there"}
	}
	v := s.Verdict()
	if rest, refused := strings.CutPrefix(v.Text, "refused now "); refused && c.Action != view.KeyBan {
		v.Text = "still refused " + rest
	}
	return v
}

// bansOf returns the bans of networks that hold for an address, or are within the network, that q names.
// targets are what q selects.
func (p *Proxy) bansOf(g *generation, q view.KeyQuery, targets []keyTarget) (all []directive.Directive) {
	set := p.directives.Load()
	if set == nil {
		return nil
	}
	for name, text := range g.textsOf(q, targets) {
		if !g.isAddress(name) {
			continue
		}
		network, err := netip.ParsePrefix(text)
		if addr, wrong := netip.ParseAddr(text); wrong == nil {
			addr = limiter.ClientAddr(addr)
			network, err = addr.Prefix(addr.BitLen())
		}
		if err == nil {
			all = append(all, set.Overlapping(network)...)
		}
	}
	return all
}

// textsOf returns the values that q names, by the names of their keys. Those of a key that is named by its id are
// known if this node remembers a request with it.
func (g *generation) textsOf(q view.KeyQuery, targets []keyTarget) map[string]string {
	texts := map[string]string{}
	for _, pair := range q.Pairs {
		texts[g.keyName(pair.Key)] = pair.Value
	}
	for _, t := range targets {
		maps.Copy(texts, t.given.Texts)
	}
	return texts
}

// denialsOf returns what else than limits refuses the requests that q names on the routes of targets: lists of
// the configuration, and maintenance.
func (p *Proxy) denialsOf(g *generation, q view.KeyQuery, targets []keyTarget) (all []string) {
	in := key.Input{Texts: g.textsOf(q, targets), IPv6Prefix: g.config.ClientIP.IPv6Prefix}
	for _, r := range g.routes {
		if !slices.ContainsFunc(targets, func(t keyTarget) bool { return t.limit.IsOf(r.Name) }) {
			continue
		}
		if s := p.directives.Load(); s != nil {
			if _, on := s.Maintenance(r.Name, time.Now()); on {
				all = append(all, "the maintenance of "+r.Name)
			}
		}
		for _, l := range r.Lists {
			var v key.Value
			if _, err := l.Key.Read(in, &v); l.Action.Refuses() && err == nil && l.Members.Has(&v) == (l.Action == config.DenyListed) {
				all = append(all, "the list "+l.Name+" on "+r.Name)
			}
		}
	}
	return all
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
// it says; a reset or a grant is about permits that were taken before it, which come back by themselves. No ban is longer
// than MaxWindow.
func (g *generation) deferChange(t *keyTarget, c limiter.Change, claims []limiter.Claim) deferredChange {
	now, lasts := time.Now(), cmp.Or(c.Ban, limiter.MaxWindow)
	if c.Action != limiter.ActionBan {
		lasts = 0
		for _, claim := range claims {
			lasts = max(lasts, claim.Limit.Horizon())
		}
	}
	return deferredChange{
		Change: c, claims: claims, limit: t.limit.FullName(), hash: g.redact.KeyHash(t.key), at: now, until: now.Add(lasts),
	}
}

// ApplyDeferred applies the changes that were made while the store was unreachable, in their order, as far
// as their time is not over: a ban lasts as long as it would have, and a reset ends bans at any time. It returns at once if nothing waits or another
// call applies them, and at the first failure; it is to be called again then.
func (p *Proxy) ApplyDeferred(ctx context.Context) {
	d := &p.deferred
	if !d.applying.TryLock() {
		return
	}
	defer d.applying.Unlock()
	for c, found := d.first(); found; c, found = d.first() {
		rest := time.Until(c.until)
		if rest <= 0 && c.Action == limiter.ActionReset {
			c.Action, rest = limiter.ActionBan, limiter.MaxWindow
		}
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
	if c.Action != limiter.ActionGrant { // a decision of the store may have undone it in the fallback meanwhile
		_ = p.admitter.Fallback.ApplyChange(ctx, c.Change, claims)
	}
	if p.admitter.Announcer != nil {
		_ = p.admitter.Announce(ctx, c.Change, claims) // on failure other nodes miss it only in their fallbacks
	}
	return nil
}

// configured returns claims with the limits of g in place of those of an earlier generation.
func (g *generation) configured(claims []limiter.Claim) (all []limiter.Claim) {
	for _, k := range limit.KeysOf(claims) {
		names := view.Each(claims, func(c limiter.Claim) string { return c.Limit.Name })
		now, _ := g.claimsOf(limiter.Change{Key: k, Limits: names})
		for _, n := range now {
			if i := slices.IndexFunc(claims, func(was limiter.Claim) bool { return was.Key == k && was.Limit.Name == n.Limit.Name }); i >= 0 {
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
