package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/directive"
)

// A KeyStanding is the state of one key under all limits that count by it.
type KeyStanding struct {
	At     time.Time       `json:"at"` // by the store's clock, like all other times
	Limits []LimitStanding `json:"limits"`
	// Networks are the bans of networks that contain the address, or are in the network, that was named.
	Networks []directive.Directive `json:"networks,omitempty"`
	// Denied are the lists of the configuration that refuse the key, and maintenance, each with its route.
	Denied []string `json:"denied,omitempty"`
	Notes  []string `json:"notes,omitempty"` // hints about the result
}

// A LimitStanding is the state of a key under one limit.
type LimitStanding struct {
	Route  string `json:"route"`
	Limit  string `json:"limit"`
	Key    string `json:"key"`    // the name of the key
	Masked string `json:"masked"` // phone=+86138****8000, or as it is if the key is not sensitive
	Logged string `json:"-"`      // as the log and the audit trail have it: masked in any case
	Hash   string `json:"hash"`   // the hash of the key in the log
	ID     string `json:"id"`     // the key id, see KeyPair.Value
	// Derived reports that the limit counts by a part of the named key, such as its country. It
	// counts other keys as well, and is changed only if the part itself is named.
	Derived   bool      `json:"derived,omitempty"`
	Plan      string    `json:"plan,omitempty"`      // the plan of the key, whose rates apply
	PlanUntil time.Time `json:"plan_until,omitzero"` // when it ends, if an operator has assigned it
	Mode      string    `json:"mode"`                // enforce or shadow
	Algorithm string    `json:"algorithm"`
	Scope     string    `json:"scope"` // overall, or per_instance; the latter is counted by this node only
	// Java reports that the limiter is shared with Redisson.
	Java bool `json:"java,omitempty"`
	// Store is memory, redis, or local: this node's share while Redis is unreachable. It is empty
	// if no store can be read.
	Store       string           `json:"store,omitempty"`
	BannedUntil time.Time        `json:"banned_until,omitzero"`
	Windows     []WindowStanding `json:"windows"`
	Penalty     *PenaltyStanding `json:"penalty,omitempty"`
	// Unknown is why the limit could not be evaluated. There are no windows then.
	Unknown string `json:"unknown,omitempty"`
	// Unaffected reports, in the result of a change, that there was no ban to end, or nothing to reset.
	Unaffected bool `json:"unaffected,omitempty"`
}

// A WindowStanding is the state of a key under one rate of a limit.
type WindowStanding struct {
	Name string `json:"name"` // the name in the log: phone-1h
	Rate string `json:"rate"` // 5/1h
	// Most is the maximum number of permits; with a conversion, that with those which verified
	// subjects add. Used and Left are the permits in use and remaining,
	// regardless of bans. For a cooldown, Used is the step.
	Most int64 `json:"most"`
	Used int64 `json:"used"`
	Left int64 `json:"left"`
	// Next is when the next permit becomes available, and Full when all are. Both are zero if no
	// permit is used.
	Next time.Time `json:"next,omitzero"`
	Full time.Time `json:"full,omitzero"`
	// Conversion is why Most is what it is, of a limit with a conversion.
	Conversion *ConversionStanding `json:"conversion,omitempty"`
	// Amounts are these numbers of a budget or a cooldown, in their unit.
	Amounts *Amounts `json:"amounts,omitempty"`
	// Granted is the number of permits that a grant has given back: at most those that were used.
	Granted int64 `json:"granted,omitempty"`
	// Overflow reports that memory is full and the key shares a count with other keys. A change has
	// no effect on it.
	Overflow bool `json:"overflow,omitempty"`
	// Unreadable reports that the store has a value of another type for the key. A reset repairs
	// it.
	Unreadable bool `json:"unreadable,omitempty"`
}

// A ConversionStanding is why so many requests of a key may be open.
type ConversionStanding struct {
	Allowed   int64 `json:"allowed"`
	Confirmed int64 `json:"confirmed"` // subjects in the window
}

func conversionStanding(s limiter.KeyStatus) *ConversionStanding {
	return &ConversionStanding{s.Allowed, s.Confirmed}
}

// String says it in words.
func (c *ConversionStanding) String() string {
	return fmt.Sprintf("allows %d: %d confirmed in the window", c.Allowed, c.Confirmed)
}

// A PenaltyStanding is the state of a key's penalty.
type PenaltyStanding struct {
	Refused int64 `json:"refused"` // recent refusals
	After   int64 `json:"after"`   // refusals that lead to a ban
	Ban     Span  `json:"ban"`
}

// Standing returns the state of a key without taking permits. Errors wrap ErrKeyQuery. If the store
// is unreachable, it returns the state in this node's fallback and no error.
func (p *Proxy) Standing(ctx context.Context, q KeyQuery) (KeyStanding, error) {
	g := p.current.Load()
	_, isNetwork, err := p.NetworkOf(q)
	if err != nil {
		return KeyStanding{}, err
	}
	targets, err := p.findTargets(g, q)
	networks := p.bansOf(g, q, targets)
	if err != nil && len(networks) == 0 && !isNetwork {
		return KeyStanding{}, err
	}
	s, err := p.standing(ctx, g, targets)
	s.Networks, s.Denied = networks, p.denialsOf(g, q, targets)
	return s, err
}

func (p *Proxy) standing(ctx context.Context, g *generation, targets []keyTarget) (KeyStanding, error) {
	ctx, cancel := context.WithTimeout(ctx, operateTimeout)
	defer cancel()
	s := KeyStanding{Limits: []LimitStanding{}}
	a, repeated := p.admitter, false
	for i := range targets {
		t := &targets[i]
		standing := g.describe(t)
		if t.reason != "" {
			standing.Unknown = t.reason
			s.Limits = append(s.Limits, standing)
			continue
		}
		standing.Store = string(g.config.Store)
		in, err := limiter.Inspection{}, error(errStoreUnreachable)
		if t.away = t.away || p.isAway(targets[:i], t.key); !t.away {
			in, err = a.store.Inspect(ctx, t.claims())
		}
		repeated = repeated || in.Repeated || t.repeated
		if errors.Is(err, limiter.ErrUnavailable) {
			t.away = true
			in, err = a.fallback.inspect(ctx, t, &standing)
		}
		if err != nil {
			return KeyStanding{}, fmt.Errorf("inspect key: %w", err)
		}
		if in.At.After(s.At) {
			s.At = in.At
		}
		t.fill(&standing, in)
		standing.Unaffected = t.unaffected
		s.Limits = append(s.Limits, standing)
	}
	if s.At.IsZero() {
		s.At = time.Now()
	}
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
	s := p.admitter.fallback.store
	return s != nil && !s.Available() && !s.Settling()
}

// operateTimeout bounds the duration of querying or changing a key.
const operateTimeout = 5 * time.Second

// describe returns the configured properties of t.
func (g *generation) describe(t *keyTarget) LimitStanding {
	w := t.limit.windows[0]
	return LimitStanding{
		Route: t.limit.Route, Limit: t.limit.Name, Key: t.spec.Name, Masked: t.masked, Logged: t.logged,
		Hash: g.redact.KeyHash(t.key), ID: g.redact.KeyID(t.key), Derived: t.derived, Plan: t.plan, PlanUntil: t.planUntil,
		Mode: string(t.limit.Mode), Algorithm: w.Algorithm.String(), Scope: w.Scope.String(),
		Java: t.limit.RedissonName != "", Windows: []WindowStanding{},
	}
}

// fill sets the state of t's claims. For a key that is counted under two secrets, the stricter
// state is used.
func (t *keyTarget) fill(to *LimitStanding, in limiter.Inspection) {
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
		to.Windows = append(to.Windows, WindowStanding{
			Name: w.rate, Rate: RateText(w.of.Limit, s.Rate), Most: most(s), Used: s.Used, Left: s.Remaining,
			Next: after(in.At, s.NextIn), Full: after(in.At, s.FullIn), Overflow: s.Overflow, Unreadable: s.Unreadable,
		})
		shown := &to.Windows[i]
		if w.Algorithm.HasConversion() && !s.Unreadable {
			shown.Conversion, shown.Left = conversionStanding(s), max(s.Allowed-s.Used, 0)
		}
		if i < len(t.granted) {
			shown.Granted = t.granted[i]
		}
		shown.Amounts = shown.amounts(w.of.Limit)
	}
	to.BannedUntil = after(in.At, banned)
	if p := t.limit.Penalty; p != nil && len(own) > len(t.windows) {
		to.Penalty = &PenaltyStanding{Refused: own[len(t.windows)].Used, After: p.After, Ban: Span(p.Ban)}
	}
}

// most returns the number of permits that may be taken at a time.
func most(s limiter.KeyStatus) int64 {
	if s.Unreadable {
		return s.Capacity
	}
	return s.Allowed
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

// inspect returns the state of a key in the local store while the shared store is unreachable.
func (f *fallback) inspect(ctx context.Context, t *keyTarget, to *LimitStanding) (limiter.Inspection, error) {
	to.Store = "local"
	switch t.limit.OnStoreFailure {
	case config.Allow, config.Deny:
		to.Store, to.Unknown = "", "the store is unreachable; meanwhile the limit follows on_store_failure: "+string(t.limit.OnStoreFailure)
		return limiter.Inspection{At: time.Now()}, nil
	}
	return f.local.Inspect(ctx, f.shares(t.claims()))
}

// notes returns hints that apply to more than one limit.
func (p *Proxy) notes(g *generation, targets []keyTarget, limits []LimitStanding) (notes []string) {
	if slices.ContainsFunc(limits, func(l LimitStanding) bool { return l.Store == "local" }) {
		notes = append(notes, "redis is unreachable: this is the state in this node's fallback, with its share of each limit")
	}
	if store := p.admitter.fallback.store; store != nil && !store.Available() {
		notes = append(notes, "redis was unreachable: nodes decide by their shares until all have reported")
	}
	if slices.ContainsFunc(limits, func(l LimitStanding) bool { return l.Scope == limiter.PerClient.String() }) {
		notes = append(notes, "limits of scope per_instance are counted by each node separately: this is the state on this node")
	}
	for _, t := range targets {
		if t.planUnknown {
			notes = append(notes, fmt.Sprintf("under %s a request says its plan, by %s; none with this key is known to this node, so these are the rates without a plan", t.limit.FullName(), t.limit.Plan.Name.From))
		}
	}
	if g.config.Privacy.Rotates && slices.ContainsFunc(targets, func(t keyTarget) bool { return !t.rotates && t.limit.RedissonName == "" }) {
		notes = append(notes, "privacy.previous_secret is set: counts under the previous secret are shown and changed only if the key is given by its value")
	}
	return notes
}
