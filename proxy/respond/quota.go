package respond

import (
	"errors"
	"net/http"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// ErrPolicy says that a Policy or a Style cannot be put into a header field.
var ErrPolicy = errors.New("policy not valid")

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
}

// A Quota writes the quota fields of one route. It is immutable and safe for
// concurrent use.
type Quota struct {
	policies []Policy
	style    Style
}

// NewQuota makes the Quota of a route. Errors wrap ErrPolicy.
func NewQuota(policies []Policy, style Style) (*Quota, error) {
	return &Quota{policies: policies, style: style}, nil
}

// A Verdict is a decision and which policies it speaks of.
type Verdict struct {
	Decision *limiter.Decision
	// Of[i] is the index of the policy that Decision.Outcomes[i] speaks of, or
	// -1 for an outcome that is not shown. Of is nil when outcomes and policies
	// are in the same order.
	Of []int
}

// Headers puts the quota fields of v into h, the header of a response that is
// about to be written. What the upstream said of its own quota stays.
func (q *Quota) Headers(v Verdict, h http.Header) {}

// A Reject is how a route words its refusals. The zero Reject is 429 and a
// sentence of ours.
type Reject struct {
	Status int    // 400 to 599; 0 means 429
	Detail string // {retry_after} becomes the whole seconds of Retry-After
}

// A Refusal is one request that was refused.
type Refusal struct {
	Verdict
	Reject    Reject
	Jitter    time.Duration // added to the wait, so that a crowd does not come back at once
	RequestID string        // may be empty
}

// TooMany is the answer to a refused request.
func (q *Quota) TooMany(r Refusal) Answer { return Answer{Status: http.StatusTooManyRequests} }
