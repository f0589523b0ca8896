// Package respond generates Weir's own responses (refusals, problem documents,
// redirects, fixed responses) and the rate limit fields of forwarded responses.
// It is the only place that maps errors to status codes.
//
// It depends on decisions of package limiter and on header fields, but not on
// requests or response writers, so that every downstream can send its
// responses.
package respond

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/reuse"
)

// A Field is a header field line.
type Field struct{ Name, Value string }

// A Header is the header of a response. Names are in canonical form.
type Header interface {
	Values(name string) []string
	// Set replaces a field by one line.
	Set(name, value string)
	// Add adds a line.
	Add(name, value string)
}

// A Response is a complete response. Weir's own responses have Content-Type, Content-Length and
// Cache-Control: no-store; configured responses have the necessary fields and the configured ones.
// The downstream adds only Date and connection fields, and omits the body for HEAD.
type Response struct {
	Status int
	Fields []Field
	Body   []byte
}

// CopyTo sets the fields of a in h under canonical names; existing fields of the same
// name are replaced. h does not share memory with a.
func (r Response) CopyTo(h map[string][]string) {
	for i, f := range r.Fields {
		name, value := http.CanonicalHeaderKey(f.Name), strings.Clone(f.Value)
		if i > 0 && r.Fields[i-1].Name == f.Name {
			h[name] = append(h[name], value)
			continue
		}
		h[name] = []string{value}
	}
}

// Field returns the value of the first field with this name, or "". Names are
// case-insensitive.
func (r Response) Field(name string) string {
	for _, f := range r.Fields {
		if http.CanonicalHeaderKey(f.Name) == http.CanonicalHeaderKey(name) {
			return f.Value
		}
	}
	return ""
}

// A Buffer holds the memory of a response, so that further responses cost no allocation. The zero
// value is ready to use. A response is valid until Reset or Discard is called; callers that keep
// parts of it longer must clone them.
type Buffer struct {
	fields []Field
	text   []byte // values of fields
	body   []byte
	state  []int64 // of a Cache; Reset keeps it
}

// Reset prepares b for another response.
func (b *Buffer) Reset() {
	clear(b.fields)
	*b = Buffer{b.fields[:0], b.text[:0], b.body[:0], b.state}
}

// buffer returns the buffer of v, prepared for a response.
func (v *Verdict) buffer() *Buffer {
	if v.Buffer == nil {
		v.Buffer = new(Buffer)
	}
	v.Buffer.Reset()
	return v.Buffer
}

// Discard is like Reset, for the next client.
func (b *Buffer) Discard() {
	clear(b.fields)
	*b = Buffer{reuse.Memory(b.fields), reuse.Memory(b.text), reuse.Memory(b.body), reuse.Memory(b.state)}
}

// textFrom returns what was appended to b.text after its first n bytes.
func (b *Buffer) textFrom(n int) string {
	if n == len(b.text) {
		return ""
	}
	return unsafe.String(&b.text[n], len(b.text)-n)
}

// formatInt returns n in decimal.
func (b *Buffer) formatInt(n int64) string {
	from := len(b.text)
	b.text = strconv.AppendInt(b.text, n, 10)
	return b.textFrom(from)
}

// Static returns a configured response. Only fields can allow caching. The body
// is dropped for a status that has none.
func Static(status int, contentType, body string, fields []Field) Response {
	a := Response{Status: status, Fields: append([]Field(nil), fields...)}
	switch {
	case status == http.StatusNoContent || status == http.StatusNotModified:
		return a
	case body != "" && status != http.StatusResetContent:
		a.Body = []byte(body)
		a.Fields = append(a.Fields, Field{"Content-Type", contentType})
	}
	a.Fields = append(a.Fields, Field{"Content-Length", strconv.Itoa(len(a.Body))})
	return a
}

// Redirect returns a redirect with a status from 301 to 308. Invalid characters
// in the URL are escaped.
func Redirect(status int, to string) Response {
	// what would end the URL or the header field
	isUnsafe := func(c byte) bool { return c <= ' ' || c >= 0x7f || strings.IndexByte(`"<>\`, c) >= 0 }
	return Static(status, "", "", []Field{{"Location", PercentEncode(to, isUnsafe)}})
}

// PercentEncode returns text with an escape for each byte that is unsafe.
func PercentEncode(text string, isUnsafe func(c byte) bool) string {
	const digits = "0123456789ABCDEF"
	var b []byte
	for i := range len(text) {
		if c := text[i]; isUnsafe(c) {
			b = append(b, '%', digits[c>>4], digits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// WithRateLimitFields returns a with the rate limit fields of an allowed request. It uses the
// buffer of v, or allocates.
func (r Response) WithRateLimitFields(q *RateLimitFields, v Verdict) Response {
	m := v.buffer()
	m.fields = append(m.fields, r.Fields...)
	q.addFields(&v)
	r.Fields = m.fields
	return r
}

// The names of fields and parameters in draft-ietf-httpapi-ratelimit-headers-10.
// Later revisions may rename parameters, so they are defined only here.
const (
	fieldPolicy = "Ratelimit-Policy" // canonical for net/http; field names ignore case
	fieldLimit  = "Ratelimit"

	paramQuota     = "q"  // permits a window
	paramWindow    = "w"  // its length in seconds, 1 or more
	paramRemaining = "r"  // permits left
	paramUnit      = "qu" // what the quota counts; requests when absent
	paramReset     = "t"  // seconds until more come

	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

	typeChallenge = "https://github.com/weir-proxy/weir/problems/challenge"

	titleChallenge       = "A challenge must be solved first"
	titleQuotaExceeded   = "Request cannot be satisfied as assigned quota has been exceeded"
	titleReducedCapacity = "Request cannot be satisfied due to temporary server capacity constraints"
)

// The de facto standard fields. Reset is a number of seconds, not a point in
// time.
const (
	fieldXLimit     = "X-Ratelimit-Limit"
	fieldXRemaining = "X-Ratelimit-Remaining"
	fieldXReset     = "X-Ratelimit-Reset"
)

// ErrorTexts replace the problem documents that are configured. They are immutable. Nil replaces none.
type ErrorTexts map[int]*compiledReject

// NewErrorTexts returns the ErrorTexts of the statuses of texts. In Detail, Body and the values of
// Fields {retry_after} is replaced by the seconds of Retry-After, 0 if there is none, {request_id} by the id of
// the request, and {status} by the status, {origin} as in a refusal. Without Detail and Body the document stays as it
// is.
func NewErrorTexts(texts []Reject) ErrorTexts {
	e := ErrorTexts{}
	for _, t := range texts {
		c := compileReject(t)
		c.prefix = string(problemOf(t.Status).append(nil)) + detailMember
		if t.Detail == "" {
			c.detail = template{}
		}
		e[t.Status] = &c
	}
	return e
}

// Replace returns a response of Weir itself with the configured text, if there is one for its status. sentOrigin is
// the field Origin of the request.
// The fields that tell more about it, such as Allow and Retry-After, stay unless
// they are configured too.
func (e ErrorTexts) Replace(a Response, id, sentOrigin string) Response {
	c := e[a.Status]
	if c == nil {
		return a
	}
	s := &substitutions{
		retryAfter: cmp.Or(a.Field("Retry-After"), "0"), requestID: id, statusCode: c.statusText,
		origin: checkedOrigin(sentOrigin),
	}
	m := Buffer{body: a.Body}
	switch {
	case c.customBody:
		m.body = c.body.append(nil, s)
	case len(c.detail.parts) > 0:
		m.body = append(c.detail.append([]byte(c.prefix), s), '"')
		m.body = append(appendID(m.body, id), "}\n"...)
	}
	for _, f := range a.Fields {
		if slices.ContainsFunc(c.fields, func(own customField) bool { return strings.EqualFold(own.name, f.Name) }) {
			continue
		}
		switch f.Name {
		case "Content-Type":
			f.Value = c.contentType
		case "Content-Length":
			f.Value = strconv.Itoa(len(m.body))
		}
		m.fields = append(m.fields, f)
	}
	m.addCustom(c.fields, s)
	return Response{Status: a.Status, Fields: m.fields, Body: m.body}
}

// The statuses of Weir's own responses that net/http has no name for, or whose reason another name tells better.
const (
	KeyMissing       = http.StatusBadRequest         // the request lacks a key that its route counts by
	KeyInvalid       = http.StatusBadRequest         // the key is ambiguous or not valid
	StoreUnavailable = http.StatusServiceUnavailable // the limits could not be evaluated; see Unavailable
	ClientGone       = 499                           // the client has disconnected; for the log only
)

// StatusOf returns the status of the response to err. Errors that this package does not know are
// internal ones; callers that know better choose the status themselves.
func StatusOf(err error) int {
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case errors.Is(err, limiter.ErrUnavailable):
		return StoreUnavailable
	case errors.Is(err, limiter.ErrInvalidCost):
		return http.StatusBadRequest
	case errors.Is(err, context.Canceled):
		return ClientGone
	case tooLarge:
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusInternalServerError
}

const contentProblem = "application/problem+json"

// A problem is a type of problem details (RFC 9457), with its title and its status.
type problem struct {
	kind, title string
	status      int
}

// problemOf returns the problem of a status. Those without a type are about:blank, titled with the status text.
func problemOf(status int) problem {
	switch status {
	case http.StatusServiceUnavailable:
		return problem{typeReducedCapacity, titleReducedCapacity, status}
	case ClientGone:
		return problem{"about:blank", "Client Closed Request", status}
	}
	return problem{"about:blank", http.StatusText(status), status}
}

// append begins the body of a response with p.
func (p problem) append(b []byte) []byte {
	b = append(append(b, `{"type":"`...), escapeJSON(p.kind)...)
	b = append(append(b, `","title":"`...), escapeJSON(p.title)...)
	return strconv.AppendInt(append(b, `","status":`...), int64(p.status), 10)
}

// response returns p as a document, with additional fields. detail and requestID may be empty.
func (p problem) response(detail, requestID string, fields ...Field) Response {
	m := Buffer{fields: fields}
	m.body = p.append(m.body)
	if detail != "" {
		m.body = append(append(append(m.body, detailMember...), escapeJSON(detail)...), '"')
	}
	m.body = append(appendID(m.body, requestID), "}\n"...)
	return m.response(p.status, contentProblem)
}

// appendID appends the member with the request id, unless that is empty.
func appendID(b []byte, id string) []byte {
	if id == "" {
		return b
	}
	return append(append(append(b, `,"request_id":"`...), escapeJSON(id)...), '"')
}

// notCached is the Cache-Control of all responses by Weir itself except configured ones.
func notCached() Field { return Field{"Cache-Control", "no-store"} }

// response adds the fields that every response has and returns the response in b.
func (b *Buffer) response(status int, contentType string) Response {
	b.fields = append(b.fields, Field{"Content-Type", contentType},
		Field{"Content-Length", b.formatInt(int64(len(b.body)))}, notCached())
	return Response{Status: status, Fields: b.fields, Body: b.body}
}

// NotAllowed returns a 405 that lists the allowed methods.
func NotAllowed(allow []string, requestID string) Response {
	return Problem(http.StatusMethodNotAllowed, "", requestID, Field{"Allow", strings.Join(allow, ", ")})
}

// Unauthorized returns a 401 with a challenge (RFC 9110 section 11.6.1).
func Unauthorized(challenge, detail, requestID string) Response {
	return Problem(http.StatusUnauthorized, detail, requestID, Field{"WWW-Authenticate", challenge})
}

// Unavailable returns a Problem with Retry-After, rounded up to whole seconds, at least 1.
func Unavailable(status int, retry time.Duration, detail, requestID string) Response {
	return Problem(status, detail, requestID, retryAfterField(retry))
}

// UnderMaintenance returns the response to a request whose route an operator has taken out of service.
func UnderMaintenance(retry time.Duration, requestID string) Response {
	p := problem{"about:blank", "Under Maintenance", http.StatusServiceUnavailable}
	return p.response("", requestID, retryAfterField(retry))
}

func retryAfterField(retry time.Duration) Field {
	return Field{"Retry-After", strconv.FormatInt(max(seconds(retry), 1), 10)}
}

// MaxForwards returns the response to a request with Max-Forwards: 0: 200 without
// a body for OPTIONS, 501 for anything else (TRACE, which Weir does not support).
func MaxForwards(method, requestID string) Response {
	if method == http.MethodOptions {
		return Response{Status: http.StatusOK, Fields: []Field{{"Content-Length", "0"}, {"Cache-Control", "no-store"}}}
	}
	return Problem(http.StatusNotImplemented, "", requestID)
}

// Problem returns a problem document (RFC 9457) for a request that Weir does not forward, with additional fields.
// detail and requestID may be empty.
func Problem(status int, detail, requestID string, fields ...Field) Response {
	return problemOf(status).response(detail, requestID, fields...)
}
