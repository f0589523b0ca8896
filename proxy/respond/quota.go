package respond

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/weir-proxy/weir/limiter"
)

// ErrPolicy says that a Policy or a Style cannot be put into a header field.
var ErrPolicy = errors.New("policy not valid")

// A name of this form is the same text as a structured String and as a Token,
// so it stays valid whichever of the two a revision of the draft demands.
var policyName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// A Style is the set of quota fields that a route's clients understand.
type Style string

// The styles there are.
const (
	IETF       Style = "ietf"        // RateLimit and RateLimit-Policy
	XRateLimit Style = "x-ratelimit" // X-RateLimit-Limit, -Remaining and -Reset
	None       Style = "none"        // no quota fields; Retry-After is still sent
)

// A Policy is how one limit of a route is called towards clients.
type Policy struct {
	// Name is unique in its route and matches [A-Za-z][A-Za-z0-9_.-]*.
	Name string
	Rate limiter.Rate
	// Expose is false for a limit that no client may learn of: it is then
	// named nowhere, only its effect on Retry-After remains.
	Expose bool
	// Limit groups policies. One with Override speaks for some clients only: in
	// an answer to one of them it stands in place of all those of its Limit
	// that do not override.
	Limit string
	// Concurrent says that the rate's count bounds what is under way at a time;
	// its window means nothing to clients.
	Concurrent bool
	Override   bool
}

// A Quota writes the quota fields of one route. It is immutable and safe for
// concurrent use.
type Quota struct {
	policies     []policy
	style        Style
	policyHeader string // the line of RateLimit-Policy; empty where no policy is exposed
	reject       compiledReject
}

// A policy is a Policy ready to be written.
type policy struct {
	Policy
	item   string // `"phone";r=`
	shown  string // `"phone";q=1;w=60`
	quota  int64
	window int64 // whole seconds, rounded up: never promises more than Rate
}

// NewQuota makes the Quota of a route that words its refusals by reject. Errors wrap
// ErrPolicy.
func NewQuota(policies []Policy, style Style, reject Reject) (*Quota, error) {
	if style != IETF && style != XRateLimit && style != None {
		return nil, fmt.Errorf("%w: headers %q; write %s, %s or %s", ErrPolicy, style, IETF, XRateLimit, None)
	}
	q := &Quota{style: style, policies: make([]policy, 0, len(policies)), reject: compileReject(reject)}
	var shown []string
	for i, p := range policies {
		if !policyName.MatchString(p.Name) {
			return nil, fmt.Errorf("%w: name %q; use letters, digits, _ . and -, a letter first", ErrPolicy, p.Name)
		}
		if slices.ContainsFunc(policies[:i], func(o Policy) bool { return o.Name == p.Name && !p.Override && !o.Override }) {
			return nil, fmt.Errorf("%w: two are called %q", ErrPolicy, p.Name)
		}
		if err := p.Rate.Check(); err != nil {
			return nil, fmt.Errorf("%w: %q: %w", ErrPolicy, p.Name, err)
		}
		c, err := compile(p)
		if err != nil {
			return nil, fmt.Errorf("%w: %q: %w", ErrPolicy, p.Name, err)
		}
		q.policies = append(q.policies, c)
		if p.Expose && !p.Override {
			shown = append(shown, c.shown)
		}
	}
	q.policyHeader = strings.Join(shown, ", ")
	return q, nil
}

// compile prepares p and makes its item of RateLimit-Policy.
func compile(p Policy) (policy, error) {
	item := httpsfv.NewItem(p.Name)
	name, err := httpsfv.Marshal(item)
	if err != nil {
		return policy{}, err
	}
	c := policy{Policy: p, item: name + ";" + paramRemaining + "=", quota: p.Rate.Count, window: seconds(p.Rate.Window)}
	item.Params.Add(paramQuota, c.quota)
	if p.Concurrent {
		item.Params.Add(paramUnit, "concurrent-requests")
	} else {
		item.Params.Add(paramWindow, c.window)
	}
	c.shown, err = httpsfv.Marshal(item)
	return c, err
}

// A Verdict is a decision and which policies it speaks of.
type Verdict struct {
	Decision *limiter.Decision
	// Of[i] is the index of the policy that Decision.Outcomes[i] speaks of, or
	// -1 for an outcome that is not shown. Of is nil when outcomes and policies
	// are in the same order.
	Of []int
	// Memory is what the values of fields are made in; nil for memory of their own.
	Memory *Memory
}

// policyOf is the policy that outcome i of v speaks of, or nil.
func (q *Quota) policyOf(v Verdict, i int) *policy {
	if v.Of != nil {
		if i >= len(v.Of) {
			return nil
		}
		i = v.Of[i]
	}
	if i < 0 || i >= len(q.policies) {
		return nil
	}
	return &q.policies[i]
}

// shownOf is the policy of outcome i if a client is told what is left of it: it is
// exposed, and somebody has looked.
func (q *Quota) shownOf(v Verdict, i int) *policy {
	if p := q.policyOf(v, i); p != nil && p.Expose && !v.Decision.Outcomes[i].Unknown {
		return p
	}
	return nil
}

// Headers puts the quota fields of v into h, the header of a response that is
// about to be written. What the upstream said of its own quota stays: a list
// is continued, and of two X-RateLimit triples the one that leaves less wins.
// It costs no allocation but those of h, if v has memory.
func (q *Quota) Headers(v Verdict, h Header) {
	if q.policyHeader == "" {
		return
	}
	if v.Memory == nil {
		v.Memory = new(Memory)
	}
	switch q.style {
	case IETF:
		h.Add(fieldPolicy, q.policyLine(v))
		if line := q.limitLine(v); line != "" {
			h.Add(fieldLimit, line)
		}
	case XRateLimit:
		t := q.xRateLimit(v)
		if t.of == nil || upstreamIsLower(h.Values(fieldXRemaining), t.left) {
			return
		}
		h.Set(fieldXLimit, v.Memory.number(t.of.quota))
		h.Set(fieldXRemaining, v.Memory.number(t.left))
		h.Set(fieldXReset, v.Memory.number(t.reset))
	}
}

// addFields adds what Headers sets to the fields in v's memory.
func (q *Quota) addFields(v Verdict) {
	m := v.Memory
	switch {
	case q.policyHeader == "":
	case q.style == IETF:
		m.fields = append(m.fields, Field{fieldPolicy, q.policyLine(v)})
		if line := q.limitLine(v); line != "" {
			m.fields = append(m.fields, Field{fieldLimit, line})
		}
	case q.style == XRateLimit:
		if t := q.xRateLimit(v); t.of != nil {
			m.fields = append(m.fields, Field{fieldXLimit, m.number(t.of.quota)}, Field{fieldXRemaining, m.number(t.left)}, Field{fieldXReset, m.number(t.reset)})
		}
	}
}

// policyLine is the value of RateLimit-Policy.
func (q *Quota) policyLine(v Verdict) string {
	if overridden := q.overridden(v); len(overridden) > 0 {
		return q.overridePolicyLine(overridden)
	}
	return q.policyHeader
}

// limitLine is the value of RateLimit, "" where there is nothing to tell.
func (q *Quota) limitLine(v Verdict) string {
	m := v.Memory
	from := len(m.text)
	for i := range v.Decision.Outcomes {
		p := q.shownOf(v, i)
		if p == nil {
			continue
		}
		if len(m.text) > from {
			m.text = append(m.text, ", "...)
		}
		o := &v.Decision.Outcomes[i]
		m.text = append(m.text, p.item...)
		m.text = strconv.AppendInt(m.text, p.remaining(o), 10)
		if t := p.reset(o); t > 0 {
			m.text = append(m.text, ";"+paramReset+"="...)
			m.text = strconv.AppendInt(m.text, t, 10)
		}
	}
	return m.since(from)
}

// overridden are the policies that v speaks of and that override others; nil,
// mostly.
func (q *Quota) overridden(v Verdict) []*policy {
	var all []*policy
	for i := range v.Decision.Outcomes {
		if p := q.policyOf(v, i); p != nil && p.Override {
			all = append(all, p)
		}
	}
	return all
}

// overridePolicyLine is the line of RateLimit-Policy for a client with overrides.
func (q *Quota) overridePolicyLine(overrides []*policy) string {
	var shown []string
	for i := range q.policies {
		p := &q.policies[i]
		its := slices.ContainsFunc(overrides, func(o *policy) bool { return o.Limit == p.Limit })
		if p.Expose && (!its && !p.Override || slices.Contains(overrides, p)) {
			shown = append(shown, p.shown)
		}
	}
	return strings.Join(shown, ", ")
}

// A xRateLimit is what X-RateLimit-* say: of one policy what is left, and in how many
// seconds more comes.
type xRateLimit struct {
	of          *policy // nil where no policy is told of
	left, reset int64
}

// xRateLimit is that of the exposed outcome which leaves least; of equal ones, of the one
// that takes longest to come back.
func (q *Quota) xRateLimit(v Verdict) (least xRateLimit) {
	for i := range v.Decision.Outcomes {
		p := q.shownOf(v, i)
		if p == nil {
			continue
		}
		o := &v.Decision.Outcomes[i]
		r, t := p.remaining(o), p.reset(o)
		if least.of == nil || r < least.left || r == least.left && t > least.reset {
			least = xRateLimit{p, r, t}
		}
	}
	return least
}

// upstreamIsLower reports whether the upstream's own X-RateLimit-Remaining is no more
// than left.
func upstreamIsLower(said []string, left int64) bool {
	if len(said) == 0 {
		return false
	}
	own, err := strconv.ParseInt(said[0], 10, 64)
	return err == nil && own >= 0 && own <= left
}

// remaining is what o leaves, within 0 and the quota; 0 if o is a refusal, even
// when some permits are left that were too few.
func (p *policy) remaining(o *limiter.Outcome) int64 {
	if !o.Allowed {
		return 0
	}
	return min(max(o.Remaining, 0), p.quota)
}

// reset is how many seconds pass until more permits come, at most the window
// unless the key is banned; 0 means that the next request need not wait.
func (p *policy) reset(o *limiter.Outcome) int64 {
	switch {
	case o.Banned:
		return seconds(o.Wait)
	case p.Concurrent:
		return min(seconds(o.Wait), 1) // it may come at any moment
	}
	return min(seconds(o.Wait), p.window)
}

// seconds is d in whole seconds, rounded up; 0 if d is negative.
func seconds(d time.Duration) int64 {
	s := int64(max(d, 0) / time.Second)
	if d > 0 && d%time.Second != 0 {
		s++
	}
	return s
}
