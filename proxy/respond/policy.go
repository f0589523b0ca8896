package respond

import (
	"regexp"

	"github.com/dunglas/httpsfv"

	"github.com/weir-proxy/weir/limiter"
)

// A name of this form is valid both as a structured-field String and as a
// Token, so it stays valid whichever the draft requires.
var policyName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// A Policy describes one limit of a route for clients.
type Policy struct {
	// Name is unique in its route and matches [A-Za-z][A-Za-z0-9_.-]*.
	Name string
	Rate limiter.Rate
	// Expose is false for a hidden limit: it is not named in responses; only
	// Retry-After takes it into account.
	Expose bool
	// Limit groups policies. A policy with Override applies to some clients
	// only: in their responses it replaces the policies of its Limit without
	// Override.
	Limit string
	// Concurrent is true if the rate's count bounds concurrent requests; its
	// window is not shown to clients.
	Concurrent bool
	Override   bool
}

// A policy is a compiled Policy.
type policy struct {
	Policy
	index      int    // among the policies of the route
	limitItem  string // `"phone";r=`
	policyItem string // `"phone";q=1;w=60`
	quota      int64
	window     int64 // whole seconds, rounded up, so that it never promises more than Rate
}

// compile compiles p and its item of RateLimit-Policy.
func compile(p Policy) (policy, error) {
	item := httpsfv.NewItem(p.Name)
	name, err := httpsfv.Marshal(item)
	if err != nil {
		return policy{}, err
	}
	c := policy{Policy: p, limitItem: name + ";" + paramRemaining + "=", quota: p.Rate.Count, window: seconds(p.Rate.Window)}
	item.Params.Add(paramQuota, c.quota)
	if p.Concurrent {
		item.Params.Add(paramUnit, "concurrent-requests")
	} else {
		item.Params.Add(paramWindow, c.window)
	}
	c.policyItem, err = httpsfv.Marshal(item)
	return c, err
}

// withCount returns a copy of p with another count.
func (p *policy) withCount(count int64) *policy {
	other := p.Policy
	other.Rate.Count = count
	own, err := compile(other)
	if err != nil {
		return p // it was compiled before with the same name
	}
	own.index = p.index
	return &own
}

// remaining returns the remaining quota of o, between 0 and the quota; 0 for a
// refusal, even if some permits are left.
func (p *policy) remaining(o *limiter.Outcome) int64 {
	if !o.Allowed {
		return 0
	}
	return min(max(o.Remaining, 0), p.quota)
}

// reset returns the seconds until more permits are available, at most the
// window unless the key is banned; 0 if the next request need not wait.
func (p *policy) reset(o *limiter.Outcome) int64 {
	switch {
	case o.Banned:
		return seconds(o.Wait)
	case p.Concurrent:
		return min(seconds(o.Wait), 1) // a concurrent permit may return at any moment
	}
	return min(seconds(o.Wait), p.window)
}
