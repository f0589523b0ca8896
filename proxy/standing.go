package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// A KeyStanding is how one key stands under all limits that count by it.
type KeyStanding struct {
	At     time.Time       `json:"at"` // by the store's clock; all other times too
	Limits []LimitStanding `json:"limits"`
	Notes  []string        `json:"notes,omitempty"` // what an operator should know of all that
}

// A LimitStanding is how a key stands under one limit.
type LimitStanding struct {
	Route  string `json:"route"`
	Limit  string `json:"limit"`
	Key    string `json:"key"`    // the name of the key
	Masked string `json:"masked"` // phone=+86138****8000
	Hash   string `json:"hash"`   // what the log calls the key
	ID     string `json:"id"`     // KeyPair.Value of the same key
	// Derived says that the limit counts by a part of the key that was named, as a
	// country: it counts for others as well, and only who names the part changes it.
	Derived   bool   `json:"derived,omitempty"`
	Mode      string `json:"mode"` // enforce or shadow
	Algorithm string `json:"algorithm"`
	Scope     string `json:"scope"` // overall, or per_client: then this is what this node counts
	// Java says that the limiter is shared with Redisson.
	Java bool `json:"java,omitempty"`
	// Store is memory, redis, or local: this node's own share while Redis is
	// unreachable; empty where nobody can be asked now.
	Store       string           `json:"store,omitempty"`
	BannedUntil time.Time        `json:"banned_until,omitzero"`
	Windows     []WindowStanding `json:"windows"`
	Penalty     *PenaltyStanding `json:"penalty,omitempty"`
	// Unknown is why the limit could not be asked; then there are no windows.
	Unknown string `json:"unknown,omitempty"`
}

// A WindowStanding is how a key stands under one rate of a limit.
type WindowStanding struct {
	Name string `json:"name"` // as the log calls it: phone-1h
	Rate string `json:"rate"` // 5/1h
	// Most is how many permits there are; Used and Left are how many of them are out and
	// are left, a ban left aside. Of a cooldown Used is the step.
	Most int64 `json:"most"`
	Used int64 `json:"used"`
	Left int64 `json:"left"`
	// Next is when one permit more comes back, and Full when all have; absent when
	// nothing is used.
	Next time.Time `json:"next,omitzero"`
	Full time.Time `json:"full,omitzero"`
	// Overflow says that memory had no room for a count of this key: it shares one with
	// others, and a change does not reach it.
	Overflow bool `json:"overflow,omitempty"`
	// Unreadable says that the store holds something else under its name; a reset heals it.
	Unreadable bool `json:"unreadable,omitempty"`
}

// A PenaltyStanding is how near a key is to a ban.
type PenaltyStanding struct {
	Refused int64 `json:"refused"` // recently
	After   int64 `json:"after"`   // so many it is banned
	Ban     Span  `json:"ban"`
}

// Standing says how a key stands, and takes nothing. Errors wrap ErrKeyQuery. A store
// that cannot be asked is no error: then it says what this node goes by meanwhile.
func (p *Proxy) Standing(ctx context.Context, q KeyQuery) (KeyStanding, error) {
	g := p.current.Load()
	targets, err := g.targets(q, p.keyOf)
	if err != nil {
		return KeyStanding{}, err
	}
	return p.standing(ctx, g, targets)
}

func (p *Proxy) standing(ctx context.Context, g *generation, targets []keyTarget) (KeyStanding, error) {
	ctx, cancel := context.WithTimeout(ctx, operateTimeout)
	defer cancel()
	s := KeyStanding{Limits: []LimitStanding{}}
	a := p.admitter
	for i := range targets {
		t := &targets[i]
		one := g.describe(t)
		if t.why != "" {
			one.Unknown = t.why
			s.Limits = append(s.Limits, one)
			continue
		}
		one.Store = string(g.config.Store)
		in, err := a.store.Inspect(ctx, t.claims())
		if errors.Is(err, limiter.ErrUnavailable) {
			in, err = a.fallback.inspect(ctx, t, &one)
		}
		if err != nil {
			return KeyStanding{}, fmt.Errorf("look a key up: %w", err)
		}
		if in.At.After(s.At) {
			s.At = in.At
		}
		t.fill(&one, in)
		s.Limits = append(s.Limits, one)
	}
	if s.At.IsZero() {
		s.At = time.Now()
	}
	s.Notes = p.notes(g, targets, s.Limits)
	return s, nil
}

// operateTimeout is the most time that looking a key up, or changing it, may take.
const operateTimeout = 5 * time.Second

// describe is what the configuration says of t.
func (g *generation) describe(t *keyTarget) LimitStanding {
	w := t.windows[0]
	return LimitStanding{
		Route: t.route.Name, Limit: t.limit.Name, Key: t.by.Name, Masked: t.masked,
		Hash: g.redact.key(t.key), ID: g.redact.keyID(t.key), Derived: t.derived,
		Mode: string(t.limit.Mode), Algorithm: w.Algorithm.String(), Scope: w.Scope.String(),
		Java: t.limit.RedissonName != "", Windows: []WindowStanding{},
	}
}

// fill writes what the store says of t's claims. Of a key that counts under two secrets
// the stricter is told.
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
			Name: w.rate, Rate: s.Rate.String(), Most: s.Capacity, Used: s.Used, Left: s.Remaining,
			Next: after(in.At, s.NextIn), Full: after(in.At, s.FullIn), Overflow: s.Overflow, Unreadable: s.Unreadable,
		})
	}
	to.BannedUntil = after(in.At, banned)
	if p := t.limit.Penalty; p != nil && len(own) > len(t.windows) {
		to.Penalty = &PenaltyStanding{Refused: own[len(t.windows)].Used, After: p.After, Ban: Span(p.Ban)}
	}
}

// after is the time that lies so far behind at; the zero Time for none.
func after(at time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return at.Add(d)
}

// stricter is what two counts of one key come to: a limit is reached when it is under
// either.
func stricter(a, b limiter.KeyStatus) limiter.KeyStatus {
	a.Used, a.Remaining = max(a.Used, b.Used), min(a.Remaining, b.Remaining)
	a.NextIn, a.FullIn, a.BannedFor = max(a.NextIn, b.NextIn), max(a.FullIn, b.FullIn), max(a.BannedFor, b.BannedFor)
	a.Overflow, a.Unreadable = a.Overflow || b.Overflow, a.Unreadable || b.Unreadable
	return a
}

// inspect says how a key stands here while the store cannot be asked.
func (s *fallback) inspect(ctx context.Context, t *keyTarget, to *LimitStanding) (limiter.Inspection, error) {
	to.Store = "local"
	switch t.limit.OnStoreFailure {
	case config.Allow, config.Deny:
		to.Store, to.Unknown = "", "the store cannot be asked; meanwhile the limit goes by on_store_failure: "+string(t.limit.OnStoreFailure)
		return limiter.Inspection{At: time.Now()}, nil
	}
	return s.local.Inspect(ctx, s.shares(t.claims()))
}

// notes are what is true of more than one limit.
func (p *Proxy) notes(g *generation, targets []keyTarget, limits []LimitStanding) (notes []string) {
	if slices.ContainsFunc(limits, func(l LimitStanding) bool { return l.Store == "local" }) {
		notes = append(notes, "redis cannot be asked: this is what this node decides by, with its share of each limit")
	}
	if store := p.admitter.fallback.store; store != nil && !store.Available() {
		notes = append(notes, "redis has been away: nodes decide by their shares until all have reported")
	}
	if slices.ContainsFunc(limits, func(l LimitStanding) bool { return l.Scope == limiter.PerClient.String() }) {
		notes = append(notes, "limits of scope per_client count on each node by itself: this is what this node counts")
	}
	if g.config.Privacy.Rotates && slices.ContainsFunc(targets, func(t keyTarget) bool { return !t.rotates && t.limit.RedissonName == "" }) {
		notes = append(notes, "privacy.previous_secret is set: what counts under the previous secret is seen and changed only where the key is given by its value")
	}
	return notes
}
