package respond

import (
	"cmp"
	"net/http"
	"strconv"
	"time"
)

// A Reject is how a route words its refusals. The zero Reject is a problem with
// status 429 and a sentence of ours. In Detail, Body and the values of Fields
// {retry_after} becomes the whole seconds of Retry-After, {limit} the first
// exposed policy that refused ("" if none is), {request_id} the request's id.
type Reject struct {
	Status      int    // 400 to 599; 0 means 429
	Detail      string // of the problem
	Fields      []Field
	Body        string // in place of a problem, unless empty
	ContentType string // of Body; for JSON and HTML placeholders are escaped
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
	violated := q.violated(r.Verdict)
	said := placeholders{after: after, id: r.RequestID}
	if len(violated) > 0 {
		said.limit = violated[0]
	}
	fields := []Field{{"Retry-After", after}}
	fields = append(fields, q.fields(r.Verdict)...)
	for _, f := range r.Reject.Fields {
		fields = append(fields, Field{f.Name, said.in(f.Value, plain)})
	}
	status := cmp.Or(r.Reject.Status, http.StatusTooManyRequests)
	if r.Reject.Body != "" {
		body := []byte(said.in(r.Reject.Body, escaping(r.Reject.ContentType)))
		return finish(status, r.Reject.ContentType, body, fields)
	}
	return problem{
		Type:      typeQuotaExceeded,
		Title:     titleQuotaExceeded,
		Status:    status,
		Detail:    said.in(cmp.Or(r.Reject.Detail, "Too many requests. Try again in {retry_after} s."), plain),
		RequestID: r.RequestID,
		Violated:  violated,
	}.answer(fields...)
}

// fields are what Headers sets.
func (q *Quota) fields(v Verdict) []Field {
	h := make(http.Header, 3)
	q.Headers(v, NetHeader{h})
	var fields []Field
	for _, name := range []string{fieldPolicy, fieldLimit, fieldXLimit, fieldXRemaining, fieldXReset} {
		for _, value := range h[name] {
			fields = append(fields, Field{name, value})
		}
	}
	return fields
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
