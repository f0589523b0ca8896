package respond

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// ErrPolicy reports that a Policy or a Style cannot be put into a header field.
var ErrPolicy = errors.New("policy not valid")

// A Style selects the rate limit fields that are sent to clients.
type Style string

// The styles.
const (
	IETF       Style = "ietf"        // RateLimit and RateLimit-Policy
	XRateLimit Style = "x-ratelimit" // X-RateLimit-Limit, -Remaining and -Reset
	None       Style = "none"        // no rate limit fields; Retry-After is still sent
)

// A RateLimitFields writes the rate limit fields of one route. It is immutable and safe
// for concurrent use.
type RateLimitFields struct {
	policies     []policy
	style        Style
	policyHeader string // value of RateLimit-Policy; empty if no policy is exposed
	reject       compiledReject
	seed         uint64 // of the hashes of refusals in a Cache
}

// NewRateLimitFields returns the RateLimitFields of a route; reject describes its refusals. Errors wrap ErrPolicy.
func NewRateLimitFields(policies []Policy, style Style, reject Reject) (*RateLimitFields, error) {
	if style != IETF && style != XRateLimit && style != None {
		return nil, fmt.Errorf("%w: headers %q; write %s, %s or %s", ErrPolicy, style, IETF, XRateLimit, None)
	}
	q := &RateLimitFields{
		style: style, policies: make([]policy, 0, len(policies)), reject: compileReject(reject), seed: rand.Uint64(),
	}
	var shown []string
	for i, p := range policies {
		if !policyName.MatchString(p.Name) {
			return nil, fmt.Errorf("%w: name %q; use letters, digits, _ . and -, a letter first", ErrPolicy, p.Name)
		}
		if slices.ContainsFunc(policies[:i], func(o Policy) bool {
			return o.Name == p.Name && !p.IsOther && !o.IsOther
		}) {
			return nil, fmt.Errorf("%w: two have the name %q", ErrPolicy, p.Name)
		}
		if err := p.Rate.Check(); err != nil {
			return nil, fmt.Errorf("%w: %q: %w", ErrPolicy, p.Name, err)
		}
		c := compile(p)
		c.index = i
		q.policies = append(q.policies, c)
		if p.Expose && !p.IsOther {
			shown = append(shown, c.policyItem)
		}
	}
	q.policyHeader = strings.Join(shown, ", ")
	return q, nil
}

// A Verdict is a decision and the policies of its outcomes.
type Verdict struct {
	Decision *limiter.Decision
	// Policies[i] is the index of the policy of Decision.Outcomes[i], or -1 for an
	// outcome that is not shown. Of is nil if outcomes and policies are in the
	// same order.
	Policies []int
	// Counts[i], if it is not 0, is the count of the rate of Decision.Outcomes[i] instead of that of its
	// policy. Counts is nil if all have those of their policies.
	Counts []int64
	// Without are limits that do not apply to this client, and whose policies are not shown.
	Without []string
	// Buffer is the buffer for the values of fields; nil to allocate them.
	Buffer *Buffer
}

// policyOf returns the policy of outcome i of v, or nil.
func (l *RateLimitFields) policyOf(v *Verdict, i int) *policy {
	at := i
	if v.Policies != nil {
		if i >= len(v.Policies) {
			return nil
		}
		i = v.Policies[i]
	}
	if i < 0 || i >= len(l.policies) {
		return nil
	}
	if at < len(v.Counts) && v.Counts[at] > 0 {
		return l.policies[i].withCount(v.Counts[at])
	}
	return &l.policies[i]
}

// exposedPolicyOf returns the policy of outcome i if the remaining quota is shown: it is
// exposed and the outcome is known; otherwise nil.
func (l *RateLimitFields) exposedPolicyOf(v *Verdict, i int) *policy {
	if p := l.policyOf(v, i); p != nil && p.Expose && !v.Decision.Outcomes[i].Unknown {
		return p
	}
	return nil
}

// Headers adds the rate limit fields of v to h, the header of a response.
// Fields of the upstream are kept: lists are extended, and of two sets of
// X-RateLimit fields the one with the lower remaining quota is used. If v has a
// buffer, only h allocates.
func (l *RateLimitFields) Headers(v Verdict, h Header) {
	if l.policyHeader == "" {
		return
	}
	m := v.buffer()
	l.addFields(&v)
	switch {
	case l.style == IETF:
		for _, f := range m.fields {
			h.Add(f.Name, f.Value)
		}
	case len(m.fields) > 0 && !upstreamIsLower(h.Values(fieldXRemaining), m.fields[1].Value):
		for _, f := range m.fields {
			h.Set(f.Name, f.Value)
		}
	}
	clear(m.fields)
}

// addFields adds the fields that Headers sets to v's buffer.
func (l *RateLimitFields) addFields(v *Verdict) {
	l.addPolicies(v)
	l.addState(v)
}

// addPolicies adds RateLimit-Policy to v's buffer, if there is one.
func (l *RateLimitFields) addPolicies(v *Verdict) {
	if l.style != IETF || l.policyHeader == "" {
		return
	}
	if line := l.policyLine(v); line != "" {
		v.Buffer.fields = append(v.Buffer.fields, Field{fieldPolicy, line})
	}
}

// addState adds the fields that Headers sets to v's buffer, except RateLimit-Policy.
func (l *RateLimitFields) addState(v *Verdict) {
	m := v.Buffer
	switch {
	case l.policyHeader == "":
	case l.style == IETF:
		if line := l.limitLine(v); line != "" {
			m.fields = append(m.fields, Field{fieldLimit, line})
		}
	case l.style == XRateLimit:
		if p, remaining, reset := l.xRateLimit(v); p != nil {
			m.fields = append(m.fields, Field{fieldXLimit, m.formatInt(p.quota)},
				Field{fieldXRemaining, m.formatInt(remaining)}, Field{fieldXReset, m.formatInt(reset)})
		}
	}
}

// policyLine returns the value of RateLimit-Policy. A client that has policies of its own sees these instead of the others
// of their limits.
func (l *RateLimitFields) policyLine(v *Verdict) string {
	var own []*policy
	for i := range v.Decision.Outcomes {
		if p := l.policyOf(v, i); p != nil && p.IsOther {
			own = append(own, p)
		}
	}
	if len(own)+len(v.Without) == 0 {
		return l.policyHeader
	}
	var shown []string
	for i := range l.policies {
		p := &l.policies[i]
		at := slices.IndexFunc(own, func(o *policy) bool { return o.index == i })
		isReplaced := p.IsOther || slices.Contains(v.Without, p.Limit) ||
			slices.ContainsFunc(own, func(o *policy) bool { return o.Limit == p.Limit })
		switch {
		case !p.Expose:
		case at >= 0:
			shown = append(shown, own[at].policyItem)
		case !isReplaced:
			shown = append(shown, p.policyItem)
		}
	}
	return strings.Join(shown, ", ")
}

// limitLine returns the value of RateLimit, "" if there is nothing to show.
func (l *RateLimitFields) limitLine(v *Verdict) string {
	text := v.Buffer.text
	from := len(text)
	for i := range v.Decision.Outcomes {
		p := l.exposedPolicyOf(v, i)
		if p == nil {
			continue
		}
		if len(text) > from {
			text = append(text, ", "...)
		}
		o := &v.Decision.Outcomes[i]
		text = append(text, p.limitItem...)
		text = strconv.AppendInt(text, p.remaining(o), 10)
		if t := p.reset(o); t > 0 {
			text = append(text, ";"+paramReset+"="...)
			text = strconv.AppendInt(text, t, 10)
		}
	}
	v.Buffer.text = text
	return v.Buffer.textFrom(from)
}

// xRateLimit returns the policy that the X-RateLimit fields describe, nil if none is shown, and what it has left: that of
// the exposed outcome with the lowest remaining quota; among equal ones, of the one with the latest reset. While some quota remains, the reset is the
// window: what was taken returns by its end at the latest, and 0 would say that nothing is taken.
func (l *RateLimitFields) xRateLimit(v *Verdict) (least *policy, remaining, reset int64) {
	for i := range v.Decision.Outcomes {
		p := l.exposedPolicyOf(v, i)
		if p == nil {
			continue
		}
		o := &v.Decision.Outcomes[i]
		r, t := p.remaining(o), p.reset(o)
		if t == 0 && r < p.quota && !p.Concurrent {
			t = p.window
		}
		if least == nil || r < remaining || r == remaining && t > reset {
			least, remaining, reset = p, r, t
		}
	}
	return least, remaining, reset
}

// upstreamIsLower reports whether the upstream's own X-RateLimit-Remaining is no more
// than ours.
func upstreamIsLower(said []string, ours string) bool {
	if len(said) == 0 {
		return false
	}
	own, err := strconv.ParseInt(said[0], 10, 64)
	left, _ := strconv.ParseInt(ours, 10, 64) // that we wrote
	return err == nil && own >= 0 && own <= left
}

// seconds returns d in whole seconds, rounded up; 0 if d is negative.
func seconds(d time.Duration) int64 {
	s := int64(max(d, 0) / time.Second)
	if d > 0 && d%time.Second != 0 {
		s++
	}
	return s
}

const (
	// jitterShare is the largest random extension of Retry-After relative to the wait, so that clients
	// that were refused together do not retry together.
	jitterShare = 0.1
	// maxJitter is the largest extension of a wait.
	maxJitter = 30 * time.Second
)

// Jitter returns the extension of a wait, against a thundering herd of retries; luck returns a random number in [0, 1). It is in whole
// seconds like Retry-After, so that rounding up adds nothing. A wait shorter than 10 s is not extended.
func Jitter(wait time.Duration, luck func() float64) time.Duration {
	most := min(time.Duration(jitterShare*float64(wait)), maxJitter)
	if most < time.Second {
		return 0
	}
	return time.Duration(luck() * float64(most.Truncate(time.Second)+time.Second)).Truncate(time.Second)
}

// retryAfter returns the value of Retry-After in seconds.
func (l *RateLimitFields) retryAfter(r *Refusal) int64 {
	wait := r.Decision.Wait
	for i := range r.Decision.Outcomes {
		wait = max(wait, r.Decision.Outcomes[i].Wait)
	}
	return max(seconds(wait+max(r.Jitter, 0)), 1)
}
