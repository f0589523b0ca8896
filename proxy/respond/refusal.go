package respond

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

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

// TooMany is the answer to a refused request. Its Retry-After is at least 1 and
// never earlier than any t that it shows. Exposed limits that refused are named
// in violated-policies and shown with nothing left; a hidden limit leaves no
// trace but Retry-After.
func (q *Quota) TooMany(r Refusal) Answer {
	after := strconv.FormatInt(q.retryAfter(r), 10)
	detail := r.Reject.Detail
	if detail == "" {
		detail = "Too many requests. Try again in {retry_after} s."
	}
	p := problem{
		Type:      typeQuotaExceeded,
		Title:     titleQuotaExceeded,
		Status:    r.Reject.Status,
		Detail:    strings.ReplaceAll(detail, "{retry_after}", after),
		RequestID: r.RequestID,
		Violated:  q.violated(r.Verdict),
	}
	if p.Status == 0 {
		p.Status = http.StatusTooManyRequests
	}
	fields := []Field{{"Retry-After", after}}
	h := make(http.Header, 3)
	q.Headers(r.Verdict, h)
	for _, name := range []string{fieldPolicy, fieldLimit, fieldXLimit, fieldXRemaining, fieldXReset} {
		for _, v := range h[name] {
			fields = append(fields, Field{name, v})
		}
	}
	return p.answer(fields...)
}

// retryAfter is the value of Retry-After in seconds.
func (q *Quota) retryAfter(r Refusal) int64 {
	wait := r.Decision.Wait
	for _, o := range r.Decision.Outcomes {
		wait = max(wait, o.Wait)
	}
	return max(seconds(wait+max(r.Jitter, 0)), 1)
}

// violated names the exposed policies that refused, in the route's order.
func (q *Quota) violated(v Verdict) []string {
	var names []string
	for i, o := range v.Decision.Outcomes {
		if p := q.policyOf(v, i); p != nil && p.Expose && !o.Allowed {
			names = append(names, p.Name)
		}
	}
	return names
}
