// Package rules is what the middleware of packages httplimit and grpclimit share: rules that
// say which requests count under which key, and their decision in one step of a store. It
// knows no protocol.
package rules

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// Errors of rules and their keys.
var (
	// ErrInvalid reports that a rule is not valid.
	ErrInvalid = errors.New("rule not valid")
	// ErrSkip is returned by a Key for a request that the rule does not apply to.
	ErrSkip = errors.New("rule does not apply")
	// ErrMissing is returned by a Key for a request that has none.
	ErrMissing = errors.New("key missing")
	// ErrKey reports that a request was not decided because of its key. It wraps the error of Key.
	ErrKey = errors.New("key not valid")
)

// A rule's name is shown to clients as a token and a string of structured fields.
var ruleName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// A Rule limits requests by a key. Its fields are documented in packages httplimit and
// grpclimit.
type Rule[R any] struct {
	Name      string
	Rates     []string
	Key       func(context.Context, R) (string, error)
	Algorithm limiter.Algorithm
	Burst     int64
	Hidden    bool
}

// A Policy describes one rate of a rule, in the order in which they are decided.
type Policy struct {
	Rule   string
	Name   string // the rule's name, with the window if it has several
	Limit  *limiter.Limit
	Hidden bool
}

// A Set decides requests by all its rules in one step. It is immutable and safe for
// concurrent use.
type Set[R any] struct {
	store   limiter.Store
	timeout time.Duration
	rules   []Rule[R]
	limits  [][]*limiter.Limit // of each rule
}

// New returns a Set. A decision or a refund takes no longer than timeout. Errors wrap
// ErrInvalid.
func New[R any](store limiter.Store, timeout time.Duration, rules ...Rule[R]) (*Set[R], error) {
	s := &Set[R]{store: store, timeout: timeout, rules: rules}
	if len(rules) == 0 {
		return nil, fmt.Errorf("%w: there is none", ErrInvalid)
	}
	names, claims := map[string]bool{}, 0
	for _, r := range rules {
		if names[r.Name] {
			return nil, fmt.Errorf("%w: two have the name %q", ErrInvalid, r.Name)
		}
		names[r.Name] = true
		limits, err := r.limits()
		if err != nil {
			return nil, fmt.Errorf("%w: %q: %w", ErrInvalid, r.Name, err)
		}
		s.limits = append(s.limits, limits)
		claims += len(limits)
	}
	if claims > limiter.MaxClaims {
		return nil, fmt.Errorf("%w: %d rates; the maximum is %d", ErrInvalid, claims, limiter.MaxClaims)
	}
	return s, nil
}

// limits returns the limit of each rate of r.
func (r Rule[R]) limits() ([]*limiter.Limit, error) {
	switch {
	case !ruleName.MatchString(r.Name):
		return nil, errors.New("use letters, digits, _ . and - for the name, a letter first")
	case r.Key == nil:
		return nil, errors.New("it has no Key")
	case len(r.Rates) == 0:
		return nil, errors.New(`it has no Rates, for example "5/1h"`)
	case r.Algorithm.HasLeases() || r.Algorithm.HasValues() || r.Algorithm.HasSteps():
		return nil, fmt.Errorf("%s needs more than a request and its outcome; use package limiter", r.Algorithm)
	}
	windows := map[time.Duration]bool{}
	var out []*limiter.Limit
	for _, text := range r.Rates {
		rate, err := limiter.ParseRate(text)
		if err != nil {
			return nil, err
		}
		if windows[rate.Window] {
			return nil, fmt.Errorf("two rates have the window %s", limiter.WindowName(rate.Window))
		}
		windows[rate.Window] = true
		l := &limiter.Limit{Name: r.Name + ":" + limiter.WindowName(rate.Window), Rate: rate, Algorithm: r.Algorithm, Burst: r.Burst}
		if err := l.Prepare(); err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// Policies describes the rates of all rules.
func (s *Set[R]) Policies() (out []Policy) {
	for i, r := range s.rules {
		for _, l := range s.limits[i] {
			p := Policy{Rule: r.Name, Name: r.Name, Limit: l, Hidden: r.Hidden}
			if len(s.limits[i]) > 1 {
				p.Name += "-" + limiter.WindowName(l.Rate.Window)
			}
			out = append(out, p)
		}
	}
	return out
}

// An Admission is the decision about one request.
type Admission struct {
	limiter.Decision
	// Policies[i] is the index of the policy of Outcomes[i].
	Policies []int

	claims []limiter.Claim
}

// Take decides r by all rules that apply to it: all of their permits are taken, or none. A
// request that no rule applies to is allowed. Errors wrap ErrKey, which is not a refusal but
// a request that cannot be counted, or limiter.ErrUnavailable.
func (s *Set[R]) Take(ctx context.Context, r R) (*Admission, error) {
	a := &Admission{}
	policy := 0
	for i, rule := range s.rules {
		value, err := rule.Key(ctx, r)
		switch {
		case errors.Is(err, ErrSkip):
			policy += len(s.limits[i])
			continue
		case err != nil:
			return nil, fmt.Errorf("%w: %s: %w", ErrKey, rule.Name, err)
		}
		k := limiter.KeyOf(rule.Name, value)
		for _, l := range s.limits[i] {
			a.claims = append(a.claims, limiter.Claim{Limit: l, Key: k, Cost: 1})
			a.Policies = append(a.Policies, policy)
			policy++
		}
	}
	if len(a.claims) == 0 {
		a.Allowed = true
		return a, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return a, s.store.Take(ctx, a.claims, &a.Decision)
}

// Refund returns the permits of a, once, unless the request's context has ended: then its client
// has left, and may have caused the failure itself. Errors wrap limiter.ErrUnavailable: it is unknown
// whether they were returned.
func (s *Set[R]) Refund(ctx context.Context, a *Admission) error {
	if a.Permit.IsZero() || ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	return s.store.Refund(ctx, a.claims, a.Permit)
}

// Subscriber returns the text of limiter.Subscriber: an IPv4 address or the /64 network of an IPv6 one.
func Subscriber(ip netip.Addr) string {
	p := limiter.Subscriber(ip)
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
