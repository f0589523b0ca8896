package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// A permitReturn returns what a limit of another route has taken for the subject of a request: see
// return_on. The limit notes its permits under the subject (limiter.Limit.Noted).
type permitReturn struct {
	key    *key.Spec // the subject, as the route whose responses return permits reads it
	status config.Statuses
	of     *limit
	limits [][]*limiter.Limit // the windows of the limit, also those of keys with rates of their own; then those of step_up
}

// addPermitReturns adds returns to the routes whose responses trigger them. A limit with mode off has taken nothing.
func (g *generation) addPermitReturns(made map[string]*route) {
	for _, l := range g.limits {
		if l.Return == nil {
			continue
		}
		p := permitReturn{key: l.Return.Key, status: l.Return.Status, of: l}
		for _, windows := range [][]*window{l.allWindows(), l.stepUps} { // a store has a note for each
			var limits []*limiter.Limit
			for _, w := range windows {
				limits = append(limits, &w.Limit)
			}
			if len(limits) > 0 {
				p.limits = append(p.limits, limits)
			}
		}
		by := made[l.Return.Route]
		by.settlesHead = true
		by.permitReturns = append(by.permitReturns, p)
	}
}

// settleOthers starts what the status of a response decides about limits of other routes. Nothing is decided by
// a request that was not counted: otherwise a client that may send any number of such requests could
// reset cooldowns and return permits at will. Nor is it after a method that servers answer by
// themselves (keepsPermits).
func (a *admitter) settleOthers(q *admission, keys []extractedKey, status int) {
	if q.exempt || q.isRepeat || q.keepsPermits {
		return
	}
	for i := range q.route.cooldownResets {
		r := &q.route.cooldownResets[i]
		if k := keyOf(keys, r.key); k != nil && r.status.Has(status) {
			a.resetCooldown(q, r, k)
		}
	}
	for i := range q.route.permitReturns {
		r := &q.route.permitReturns[i]
		if k := keyOf(keys, r.key); k != nil && r.status.Has(status) {
			a.returnPermits(q, r, k)
		}
	}
}

// keyOf returns the key that a request has for s, or nil.
func keyOf(keys []extractedKey, s *key.Spec) *extractedKey {
	for i := range keys {
		if keys[i].spec == s && !keys[i].skip {
			return &keys[i]
		}
	}
	return nil
}

// A returner is a store over a network whose returns are effective for later calls of this process as soon as
// they are started; wait returns their result. See redisstore.Store.
type returner interface {
	StartReturn(limits []*limiter.Limit, subject limiter.Key) (wait func() (int, error))
}

// startReturn starts a return, and makes it if the store is in memory.
func startReturn(store limiter.AdminStore, limits []*limiter.Limit, subject limiter.Key) (wait func() (int, error)) {
	if s, ok := store.(returner); ok {
		return s.StartReturn(limits, subject)
	}
	n, err := store.Return(context.Background(), limits, subject)
	return func() (int, error) { return n, err }
}

// returnPermits starts to return the permits that the limit of r has noted under k. What this node granted
// while the store was unreachable is noted here too, and in the store since that was told of it. If the store is
// unreachable now, its permits stay taken, until another response returns them or they expire.
func (a *admitter) returnPermits(q *admission, r *permitReturn, k *extractedKey) {
	subjects := []limiter.Key{k.Key}
	if q.bothSecrets {
		subjects = append(subjects, k.previous)
	}
	for _, subject := range subjects {
		wait := a.startReturn(r, subject)
		q.settled.start("return permits", func() error {
			_, err := wait()
			return err
		})
	}
}

// startReturn starts to return the permits of one subject on this node and in the store.
func (a *admitter) startReturn(r *permitReturn, subject limiter.Key) (wait func() (int, error)) {
	returned, inStore := 0, []func() (int, error){}
	for _, limits := range r.limits {
		here, err := a.fallback.returnHere(limits, subject)
		if err != nil {
			return func() (int, error) { return 0, err }
		}
		returned += here
		inStore = append(inStore, startReturn(a.store, limits, subject))
	}
	wrong := a.countWrong(r.of, subject)
	return func() (int, error) {
		var failed error
		counted := 0 // without those of step_up
		for i, wait := range inStore {
			n, err := wait()
			returned, failed = returned+n, errors.Join(failed, err)
			if i == 0 {
				counted = n
			}
		}
		failed = errors.Join(failed, wrong())
		a.metrics.returns.WithLabelValues(r.of.Route, r.of.Name).Add(float64(returned))
		a.metrics.sends.WithLabelValues(r.of.Route, r.of.Name, "verified").Add(float64(counted))
		a.countSends(r.of.sends.AllClaims(sends.Returned, int64(counted)))
		return returned, failed
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
		for i := range r.permitReturns {
			if err := p.admitter.settleSubject(g, &r.permitReturns[i], given, &result); err != nil {
				return result, err
			}
		}
	}
	if len(result.Returned) == 0 {
		return OutcomeResult{}, fmt.Errorf("%w: no return_on has the key %q; write one of %s", view.ErrKeyQuery, o.Key, joinNames(g.subjectNames()))
	}
	return result, nil
}

// settleSubject returns the permits that the limit of r has noted under the given key, and adds them to
// result, unless the subject of r is another key.
func (a *admitter) settleSubject(g *generation, r *permitReturn, given key.Input, result *OutcomeResult) error {
	var v key.Value
	read, err := r.key.Read(given, &v)
	switch {
	case errors.Is(err, key.ErrMissing), err == nil && (read.Derived || len(read.Names) != len(given.Texts)):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", view.ErrKeyQuery, err)
	}
	subjects := []limiter.Key{g.config.Privacy.Hash(v.Parts)}
	if previous, rotates := g.config.Privacy.PreviousHash(v.Parts); rotates {
		subjects = append(subjects, previous)
	}
	result.Masked, result.Logged, result.Hash = g.display().Value(&v), g.logDisplay().Value(&v), g.redact.KeyHash(subjects[0])
	returned := ReturnedLimit{Route: r.of.Route, Limit: r.of.Name}
	for _, subject := range subjects {
		n, err := a.startReturn(r, subject)()
		returned.Requests += n
		if err != nil {
			return fmt.Errorf("%s: %w", r.of.FullName(), err)
		}
	}
	result.Returned = append(result.Returned, returned)
	return nil
}

// subjectNames returns the names of the keys that return_on names.
func (g *generation) subjectNames() (names []string) {
	for _, r := range g.routes {
		for _, p := range r.permitReturns {
			names = append(names, p.key.Name)
		}
	}
	return names
}
