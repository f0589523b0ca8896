package proxy

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/limit"

	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// Change applies c to the store, to the fallback of this node, and, by notifications, to those of
// all other nodes; cached refusals of the key are removed as well. Limits that count by a part of
// the key, such as its country, are skipped unless the part is named. If an error is returned,
// nothing was changed; it wraps ErrKeyQuery or limiter.ErrUnavailable.
func (p *Proxy) Change(ctx context.Context, c view.KeyChange) (view.KeyResult, error) {
	change, err := storeChange(c)
	if err != nil {
		return view.KeyResult{}, err
	}
	g := p.current.Load()
	targets, err := p.findTargets(g, c.KeyQuery)
	if err != nil {
		if bans := p.bansOf(g, c.KeyQuery, nil); len(bans) > 0 {
			return view.KeyResult{}, fmt.Errorf("%w; its requests are refused by the ban of %s: name that network", err, bans[0].Network)
		}
		return view.KeyResult{}, err
	}
	r := view.KeyResult{KeyChange: c, Changed: []view.LimitStanding{}, Everywhere: true}
	r.Pairs = nil // a result may be shown to others
	targets = slices.DeleteFunc(targets, func(t keyTarget) bool {
		why := t.unchangeable(c.Action)
		if why != "" {
			r.Skipped = append(r.Skipped, view.SkippedLimit{Route: t.limit.Route, Limit: t.limit.Name, Why: why})
		}
		return why != ""
	})
	if len(targets) == 0 {
		return view.KeyResult{}, fmt.Errorf("%w: nothing can be changed; %s: %s", view.ErrKeyQuery, view.LimitName(r.Skipped[0].Route, r.Skipped[0].Limit), r.Skipped[0].Why)
	}
	// The change continues if the client disconnects: half a change is worse than a late one.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), operateTimeout)
	defer cancel()
	if !p.storeAway() {
		p.ApplyDeferred(within) // what was changed before must not be applied after this
	}
	var wrong error
	changed, waits := targets[:0], &deferral{}
	for _, t := range targets {
		t.away = p.isAway(changed, t.key) || p.deferred.has(t.key)
		done, err := p.applyChange(within, g, &t, change, waits)
		if err != nil {
			r.Skipped = append(r.Skipped, view.SkippedLimit{Route: t.limit.Route, Limit: t.limit.Name, Why: ErrorText(err)})
			wrong = errors.Join(wrong, fmt.Errorf("%s %s: %w", c.Action, t.limit.FullName(), err))
			continue
		}
		r.Everywhere, r.Later = r.Everywhere && done.Everywhere, r.Later || done.Later
		t.done, t.standing.Unaffected = done, !done.Affected
		changed = append(changed, t)
	}
	if len(changed) == 0 {
		return view.KeyResult{}, wrong
	}
	s, err := p.standing(within, g, changed)
	r.Changed, r.At, r.Notes, r.Now = s.Limits, s.At, s.Notes, p.Now(within, c)
	r.Settled = waits.settled
	switch {
	case r.Later && c.Action == view.KeyBan:
		r.Notes = append(r.Notes, "redis is unreachable: this node applies the ban on all nodes when redis is back, for the time that is left; it is lost if this node ends before")
	case r.Later:
		r.Notes = append(r.Notes, "redis is unreachable: this node applies the change on all nodes when redis is back; it is lost if this node ends before")
	case !r.Everywhere:
		r.Notes = append(r.Notes, "redis is unreachable: the change applies to this node only, until redis is back")
	}
	return r, err
}

// storeChange returns the change for the stores, or an error if c is not valid.
func storeChange(c view.KeyChange) (limiter.Change, error) {
	switch c.Action {
	case view.KeyReset:
		return limiter.Change{Action: limiter.ActionReset}, nil
	case view.KeyUnban:
		return limiter.Change{Action: limiter.ActionBan}, nil
	case view.KeyBan:
		d := time.Duration(c.For)
		if d <= 0 || limiter.CheckBan(d) != nil {
			return limiter.Change{}, fmt.Errorf("%w: the time (for) is from 1ms to 366d; write for example 1h", view.ErrKeyQuery)
		}
		return limiter.Change{Action: limiter.ActionBan, Ban: d}, nil
	case view.KeyGrant:
		if c.Permits < 1 || c.Permits > limiter.MaxCount {
			return limiter.Change{}, fmt.Errorf("%w: number of permits to grant; write a whole number from 1 to %d", view.ErrKeyQuery, int64(limiter.MaxCount))
		}
		return limiter.Change{Action: limiter.ActionGrant, Grant: c.Permits}, nil
	}
	return limiter.Change{}, fmt.Errorf("%w: %q; write reset, grant, ban or unban", view.ErrKeyQuery, string(c.Action))
}

// unchangeable returns why an action cannot be applied to t; empty if it can.
func (t *keyTarget) unchangeable(a view.KeyAction) string {
	switch {
	case t.standing.Unknown != "":
		return t.standing.Unknown
	case t.standing.Derived:
		return "it counts by " + t.standing.Masked + ", and so for others as well; name that to change it"
	case t.redissonName != "" && (a == view.KeyBan || a == view.KeyUnban):
		return "a shared Redisson limiter has no bans"
	}
	return ""
}

// changeClaims returns the claims to which a change applies. The refusals counted for a penalty are
// reset with their limit, but are neither granted nor banned. A ban, its end and a reset hold whatever
// the plan of the key is.
func (t *keyTarget) changeClaims(c limiter.Change) []limiter.Claim {
	claims := t.claims()
	if c.Action != limiter.ActionGrant {
		claims = t.claimsOn(t.limit.CountedUnder(t.windows))
	}
	if t.limit.Sends != nil && c.Action == limiter.ActionReset { // what was sent is forgotten with what is open
		claims = append(claims, t.limit.Sends.OfKey(t.key)...)
	}
	if c.Action != limiter.ActionReset {
		claims = slices.DeleteFunc(claims, func(claim limiter.Claim) bool { return claim.Limit == &t.limit.RefusalLimit })
	}
	return claims
}

// applyChange applies c to the counts of t, on this node and on the nodes that are notified. While the store is
// unreachable, c applies on this node, if it decides by itself, and waits for the store.
func (p *Proxy) applyChange(
	ctx context.Context, g *generation, t *keyTarget, c limiter.Change, waits *deferral,
) (done limit.AppliedChange, err error) {
	a, claims := p.admitter, t.changeClaims(c)
	if err = limit.ErrStoreUnreachable; !t.away {
		done, err = a.ApplyToStore(ctx, c, claims)
	}
	t.away = errors.Is(err, limiter.ErrUnavailable)
	if err != nil && !t.away {
		return done, err
	}
	if at := longest(t.windows); at < len(done.Granted) && done.Granted[at] > 0 && t.limit.Sends != nil {
		a.CountSends(t.limit.Sends.Claims(sends.Refunded, t.key, done.Granted[at]))
	}
	if t.away {
		done.Later = p.deferred.add(g.deferChange(t, c, claims), waits)
		done.Affected = true // nobody knows
		if !t.limit.IsLocal() {
			if done.Later {
				err = nil
			}
			return done, err
		}
	}
	if err := a.Fallback.ApplyChange(ctx, c, claims); err != nil || t.away {
		return done, err
	}
	// If it cannot be announced, the store has the change; other nodes miss it only in their fallbacks.
	done.Everywhere = a.Announcer == nil || a.Announce(ctx, c, claims) == nil
	return done, nil
}

// longest returns the index of the longest of windows.
func longest(windows []*limit.Window) (at int) {
	for i, w := range windows {
		if w.Rate.Window > windows[at].Rate.Window {
			at = i
		}
	}
	return at
}

// onChange applies a change made on another node to the counts of this node: its share for outages of
// the store, and limits of scope per_instance. Limits that are not configured here are ignored.
func (p *Proxy) onChange(c limiter.Change) {
	claims, own := p.current.Load().claimsOf(c)
	if len(claims) == 0 {
		return
	}
	if c.Automatic {
		p.admitter.Fallback.RecordBan(claims, c.Ban)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit.SettleTimeout)
	defer cancel()
	err := p.admitter.Fallback.ApplyChange(ctx, c, claims)
	if len(own) > 0 {
		err = errors.Join(err, c.Apply(ctx, p.admitter.Store, own))
	}
	if err != nil {
		p.log.Warn().Err(err).Msg("key change not applied")
	}
}

// claimsOf returns claims on the limits that a change names. own are those that each node counts in
// its own store.
func (g *generation) claimsOf(c limiter.Change) (claims, own []limiter.Claim) {
	for _, l := range g.limits {
		t := newKeyTarget(l, c.Key)
		t.windows = t.limit.CountedUnder(t.windows)
		if !slices.ContainsFunc(t.windows, func(w *limit.Window) bool { return slices.Contains(c.Limits, w.Limit.Name) }) {
			continue
		}
		for _, claim := range t.claims() {
			if !slices.Contains(c.Limits, claim.Limit.Name) || len(claims) == limiter.MaxClaims {
				continue
			}
			claims = append(claims, claim)
			if claim.Limit.Scope == limiter.PerClient && !l.IsShared() {
				own = append(own, claim)
			}
		}
	}
	return claims, own
}

// keyIDForm matches a KeyID: the hash of the key in the log, and the encrypted key.
var keyIDForm = regexp.MustCompile(`^id:([0-9a-f]{12})-([0-9a-f]{32})$`)

// cutID matches what was meant to be a key id or a hash.
var cutID = regexp.MustCompile(`^(id|hash):`)

// hashAlone matches the hash of a key in the log.
var hashAlone = regexp.MustCompile(`^[0-9a-f]{12}$`)

// NamesKey reports whether text is the hash of a key in the log, or a key id. Both may be shown
// where keys must not be.
func NamesKey(text string) bool { return hashAlone.MatchString(text) || keyIDForm.MatchString(text) }

// KeyID returns an identifier of k with which operators can query and change the key without
// knowing its value. It is k encrypted by AES with a secret derived from the log's salt, which all
// nodes of a cluster share. It does not reveal the value: only with k itself could a phone number
// be found by brute force. It is valid as long as the salt.
func (r *redactor) KeyID(k limiter.Key) string {
	var out limiter.Key
	r.cipher().Encrypt(out[:], k[:])
	return "id:" + r.KeyHash(k) + "-" + out.String()
}

// readKeyID decrypts a key id. found reports whether text has the form of one.
func (r *redactor) readKeyID(text string) (k limiter.Key, found bool, err error) {
	m := keyIDForm.FindStringSubmatch(text)
	if m == nil {
		return k, false, nil
	}
	raw, err := hex.DecodeString(m[2])
	if err != nil {
		return k, true, err
	}
	r.cipher().Decrypt(k[:], raw) // a key has the size of one block
	if r.KeyHash(k) != m[1] {
		return k, true, fmt.Errorf("%w: this id is from another cluster, or from before its salt was lost; look the key up again", view.ErrKeyQuery)
	}
	return k, true, nil
}

// cipher returns the block cipher derived from the salt.
func (r *redactor) cipher() cipher.Block {
	salt := r.salt()
	secret := sha256.Sum256(append([]byte("id of a key"), salt[:]...))
	block, err := aes.NewCipher(secret[:])
	if err != nil {
		panic(err) // the length of the secret is valid
	}
	return block
}

// findTargets returns the limits selected by q. A key that is named by its id is completed by what this
// node remembers of it.
func (p *Proxy) findTargets(g *generation, q view.KeyQuery) ([]keyTarget, error) {
	targets, err := g.findTargets(q, p.keyByHash)
	for i := range targets {
		t := &targets[i]
		if t.byID {
			p.complete(g, t)
		}
		if d, found := p.assignment(t); found {
			t.assign(d)
			continue
		}
		if t.limit.PlanKey() != nil && !t.overridden {
			p.findPlan(g, t)
		}
	}
	return targets, err
}

// findPlan sets the plan that the last request known to this node had, where each request says its plan.
func (p *Proxy) findPlan(g *generation, t *keyTarget) {
	hash := g.redact.KeyHash(t.key)
	for _, d := range p.Decisions(view.DecisionQuery{Route: t.limit.Route, Limit: t.limit.Name, Key: hash, N: 1}) {
		for _, l := range d.Limits {
			if l.Limit == t.limit.Name && l.Hash == hash {
				t.setPlan(l.Plan)
				return
			}
		}
	}
	t.planUnknown = true
}

// complete adds to t, which was named by an id, what the value of the key determines: the masked text, and
// the rates of an override. The value is that of a recent request on this node; if there was none, or if
// it was too long to be kept, t stays as the id alone determines it.
func (p *Proxy) complete(g *generation, t *keyTarget) {
	l, found := p.shared.observer.LabelOf(t.key, t.limit.Top)
	if !found {
		return
	}
	leaves, texts := t.spec.Components(), l.Texts()
	t.standing.Masked, t.standing.Logged = l.Masked(g.display(), t.spec.Shapes()), l.Masked(g.logDisplay(), t.spec.Shapes())
	given := key.Input{Texts: map[string]string{}, IPv6Prefix: g.config.ClientIP.IPv6Prefix}
	for i := range min(len(leaves), len(texts)) {
		given.Texts[leaves[i].Name] = texts[i]
	}
	if same, found, err := g.matchValue(t.limit, given); found && err == nil && same.key == t.key {
		*t = same
	}
}

// An Outcome tells what became of the subject of earlier requests, for an application whose requests to verify do not pass
// Weir: it returns permits as a response of the route that return_on names does.
type Outcome struct {
	Key     string `json:"key"`     // name of a key that return_on names
	Value   string `json:"value"`   // its value, as in a request
	Outcome string `json:"outcome"` // verified
}

// Verified is the outcome that returns permits: the code was used, the order was paid.
const Verified = "verified"

// An OutcomeResult is the result of an Outcome. It does not contain the value.
type OutcomeResult struct {
	Key      string          `json:"key"`
	Masked   string          `json:"masked"`   // phone=+86138****8000, or as it is if the key is not sensitive
	Logged   string          `json:"-"`        // as the log and the audit trail have it: masked in any case
	Hash     string          `json:"hash"`     // the hash of the key in the log
	Returned []ReturnedLimit `json:"returned"` // by limit
	At       time.Time       `json:"at"`
}

// A ReturnedLimit tells of how many requests a limit has returned the permits.
type ReturnedLimit struct {
	Route    string `json:"route"`
	Limit    string `json:"limit"`
	Requests int    `json:"requests"`
}

// ApplyOutcome returns the permits that all limits have noted under the subject of o. Errors wrap ErrKeyQuery or
// limiter.ErrUnavailable; then some permits may have been returned, and o may be repeated.
func (p *Proxy) ApplyOutcome(_ context.Context, o Outcome) (OutcomeResult, error) {
	if o.Outcome != Verified {
		return OutcomeResult{}, fmt.Errorf("%w: there is no outcome %q; write verified", view.ErrKeyQuery, o.Outcome)
	}
	g := p.current.Load()
	given, err := g.given(view.KeyQuery{Pairs: []view.KeyPair{{Key: o.Key, Value: o.Value}}})
	if err != nil {
		return OutcomeResult{}, err
	}
	result := OutcomeResult{Key: o.Key, Returned: []ReturnedLimit{}, At: time.Now()}
	for _, r := range g.routes {
		for i := range r.Others {
			if err := p.settleSubject(g, &r.Others[i], given, &result); err != nil {
				return result, err
			}
		}
	}
	if len(result.Returned) == 0 {
		return OutcomeResult{}, fmt.Errorf("%w: no return_on has the key %q; keys of a return_on: %s", view.ErrKeyQuery, o.Key, cmp.Or(joinNames(g.subjectNames()), "none"))
	}
	return result, nil
}

// settleSubject returns the permits that the limit of r has noted under the given key, and adds them to
// result, unless r returns none, or for another key.
func (p *Proxy) settleSubject(g *generation, r *limit.OtherRule, given key.Input, result *OutcomeResult) error {
	var v key.Value
	read, err := r.Key.Read(given, &v)
	switch {
	case !r.IsReturn(), errors.Is(err, key.ErrMissing), err == nil && (read.Derived || len(read.Names) != len(given.Texts)):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", view.ErrKeyQuery, err)
	}
	subjects := []limiter.Key{g.config.Privacy.Hash(v.Parts)}
	if previous, rotates := g.config.Privacy.PreviousHash(v.Parts); rotates {
		subjects = append(subjects, previous)
	}
	result.Masked, result.Logged, result.Hash = g.display().Value(&v), g.logDisplay().Value(&v), g.redact.KeyHash(subjects[0])
	returned := ReturnedLimit{Route: r.Of.Route, Limit: r.Of.Name}
	for _, subject := range subjects {
		n, err := p.admitter.StartReturn(r, subject)()
		returned.Requests += n
		if err != nil {
			return fmt.Errorf("%s: %w", r.Of.FullName(), err)
		}
	}
	result.Returned = append(result.Returned, returned)
	return nil
}

// subjectNames returns the names of the keys that return_on names.
func (g *generation) subjectNames() (names []string) {
	for _, r := range g.routes {
		for _, other := range r.Others {
			if other.IsReturn() {
				names = append(names, other.Key.Name)
			}
		}
	}
	return names
}
