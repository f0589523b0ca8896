package respond

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A Reject describes the refusals of a route. The zero Reject is a problem
// document with status 429 (Too Many Requests) and a default detail. In Detail, Body and the values
// of Fields {retry_after} is replaced by the seconds of Retry-After, {limit} by
// the first exposed policy that refused ("" if there is none), {request_id} by
// the id of the request, and {status} by the status. {origin} in the value of a
// field is replaced by the origin of the page that made the request; without one
// the field is left out. Such a response has Vary: Origin.
type Reject struct {
	Status      int    // 400 to 599; 0 means 429
	Detail      string // of the problem
	Fields      []Field
	Body        string // in place of a problem, unless empty
	ContentType string // of Body; for JSON and HTML placeholders are escaped
}

// A compiledReject is a compiled Reject: everything that is the same in all refusals of
// a route is rendered and escaped once.
type compiledReject struct {
	status      int
	statusText  string // status in decimal
	fields      []customField
	cors        []customField // those of fields without which a browser shows no response to a page of another origin
	hasOrigin   bool          // a field has the origin
	contentType string
	customBody  bool     // the body is configured; otherwise it is a problem document
	body        template // the configured body
	prefix      string   // the beginning of the problem document, up to its detail
	detail      template // the detail of the problem document
	namesLimit  bool     // a placeholder is replaced by the limit that refused
}

// detailMember begins the detail of a problem document.
const detailMember = `,"detail":"`

// A customField is a configured header field.
type customField struct {
	name  string
	value template
}

func compileReject(from Reject) compiledReject {
	r := compiledReject{status: cmp.Or(from.Status, http.StatusTooManyRequests)}
	r.statusText = strconv.Itoa(r.status)
	for _, f := range from.Fields {
		value := newTemplate(f.Value, unescaped, unescaped)
		r.fields = append(r.fields, customField{f.Name, value})
		r.namesLimit, r.hasOrigin = r.namesLimit || value.has(limitName), r.hasOrigin || value.has(origin)
	}
	if r.hasOrigin {
		r.fields = append(r.fields, customField{"Vary", newTemplate("Origin", unescaped, unescaped)})
	}
	for _, f := range r.fields {
		if strings.HasPrefix(f.name, "Access-Control-") || r.hasOrigin && f.name == "Vary" {
			r.cors = append(r.cors, f)
		}
	}
	if from.Body != "" {
		r.customBody, r.contentType = true, from.ContentType
		r.body = newTemplate(from.Body, unescaped, escapingFor(from.ContentType))
		r.namesLimit = r.namesLimit || r.body.has(limitName)
		return r
	}
	r.contentType = contentProblem
	r.prefix = string(problem{typeQuotaExceeded, titleQuotaExceeded, r.status}.append(nil)) + detailMember
	detail := cmp.Or(from.Detail, "Too many requests. Try again in {retry_after} s.")
	r.detail = newTemplate(detail, escapeJSON, escapeJSON)
	r.namesLimit = r.namesLimit || r.detail.has(limitName)
	return r
}

// A Refusal describes a refused request.
type Refusal struct {
	Verdict
	Jitter    time.Duration // added to Retry-After, so that clients do not retry at the same moment
	RequestID string        // may be empty
	Origin    string        // the field Origin of the request, as it was sent; used if HasOrigin
}

// HasOrigin reports whether refusals have the origin of the page that made the request.
func (l *RateLimitFields) HasOrigin() bool { return l.reject.hasOrigin }

// TooManyRequests returns the response to a refused request, in the memory of r or in its own. Its
// Retry-After is at least 1 and never earlier than any reset that the rate limit fields show.
// Exposed limits that refused are listed in violated-policies and shown with no remaining quota; a
// hidden limit only affects Retry-After.
func (l *RateLimitFields) TooManyRequests(r Refusal) Response {
	m := r.buffer()
	m.fields = append(m.fields, Field{"Content-Type", l.reject.contentType}, notCached())
	l.addPolicies(&r.Verdict)
	s := &substitutions{
		retryAfter: m.formatInt(l.retryAfter(&r)), requestID: r.RequestID, statusCode: l.reject.statusText,
	}
	if l.reject.hasOrigin {
		s[origin] = checkedOrigin(r.Origin)
	}
	if l.reject.namesLimit {
		s[limitName] = l.firstViolated(&r.Verdict)
	}
	m.fields = append(m.fields, Field{"Retry-After", s[retryAfter]})
	l.addState(&r.Verdict)
	if len(l.reject.fields) > 0 {
		m.addCustom(l.reject.fields, s)
	}
	if l.reject.customBody {
		m.body = l.reject.body.append(m.body, s)
	} else {
		m.body = l.appendBody(m.body, &r.Verdict, s)
	}
	m.fields = append(m.fields, Field{"Content-Length", m.formatInt(int64(len(m.body)))})
	return Response{Status: l.reject.status, Fields: m.fields, Body: m.body}
}

// Challenge returns the response to a request that is refused with the challenge of this name, which detail explains: 403, whatever the Reject of the route
// is, of which it has only the fields Access-Control-*. Its Retry-After is when the request would pass without.
func (l *RateLimitFields) Challenge(name, detail string, r Refusal) Response {
	m := r.buffer()
	m.fields = append(m.fields, Field{"Retry-After", m.formatInt(l.retryAfter(&r))})
	l.addFields(&r.Verdict)
	m.addCustom(l.reject.cors, &substitutions{
		requestID: r.RequestID, statusCode: l.reject.statusText, origin: checkedOrigin(r.Origin),
	})
	m.body = problem{typeChallenge, titleChallenge, http.StatusForbidden}.append(m.body)
	m.body = append(append(m.body, detailMember...), escapeJSON(detail)...)
	m.body = append(append(m.body, `","challenge":"`...), escapeJSON(name)...)
	m.body = append(appendID(append(m.body, '"'), r.RequestID), "}\n"...)
	return m.response(http.StatusForbidden, contentProblem)
}

// addCustom adds configured fields.
func (b *Buffer) addCustom(fields []customField, s *substitutions) {
	for i := range fields {
		if s[origin] == "" && fields[i].value.has(origin) {
			continue
		}
		from := len(b.text)
		b.text = fields[i].value.append(b.text, s)
		b.fields = append(b.fields, Field{fields[i].name, b.textFrom(from)})
	}
}

// appendBody appends the problem of a refusal.
func (l *RateLimitFields) appendBody(b []byte, v *Verdict, s *substitutions) []byte {
	b = append(b, l.reject.prefix...)
	from := len(b)
	if b = l.reject.detail.append(b, s); len(b) > from {
		b = append(b, '"')
	} else {
		b = b[:from-len(detailMember)] // omit an empty detail
	}
	b = appendID(b, s[requestID])
	const further = `,"`
	before := `,"violated-policies":["`
	for i := range v.Decision.Outcomes {
		if p := l.violates(v, i); p != nil {
			b = append(append(append(b, before...), p.Name...), '"') // names need no escapes
			before = further
		}
	}
	if before == further {
		b = append(b, ']')
	}
	return append(b, "}\n"...)
}

// violates returns the policy of outcome i if it is exposed and has refused, otherwise nil.
func (l *RateLimitFields) violates(v *Verdict, i int) *policy {
	if p := l.policyOf(v, i); p != nil && p.Expose && !v.Decision.Outcomes[i].Allowed {
		return p
	}
	return nil
}

// firstViolated returns the name of the first exposed policy that refused, in the route's
// order.
func (l *RateLimitFields) firstViolated(v *Verdict) string {
	for i := range v.Decision.Outcomes {
		if p := l.violates(v, i); p != nil {
			return p.Name
		}
	}
	return ""
}

const (
	// cacheSlots is the number of refusals that a Cache keeps at most.
	cacheSlots = 256
	// cacheAfter is the number of equal refusals in a row, as far as they meet in a slot, after which the next is kept.
	// What keeping it costs is little for each of them, and refusals that are never the same do not pay it.
	cacheAfter = 16
)

// A Cache keeps rendered refusals. A flood of requests gets few different ones: until the second changes,
// they differ only in the id of the request and in the jitter of Retry-After. B is the form in which a downstream
// sends fields. A Cache takes 4 KB, and about 1 KB for each refusal that it keeps, at most 260 KB, whatever the
// number of routes. It is safe for concurrent use.
type Cache[B any] struct {
	render func(fields []Field) *B
	slots  [cacheSlots]cacheSlot[B]
}

// A cacheSlot holds a refusal.
type cacheSlot[B any] struct {
	missed atomic.Uint64 // the hash of the refusal that was last not found, and how often in its last byte
	kept   atomic.Pointer[cachedRefusal[B]]
}

// A cachedRefusal is the response to a request, for all requests with another id of the same length.
type cachedRefusal[B any] struct {
	of       *RateLimitFields
	state    []int64
	response Response
	block    *B
	idAt     int // where the body has the id of the request; -1 if it has none
}

// NewCache returns an empty Cache. render renders the fields of a response; nil is a response that is not kept.
func NewCache[B any](render func(fields []Field) *B) *Cache[B] { return &Cache[B]{render: render} }

// TooManyRequests returns the same response as l, and its fields without Content-Length as they were
// rendered before, or nil. All request ids must have the same length and be unlike any other text. r must have a
// Buffer.
func (c *Cache[B]) TooManyRequests(l *RateLimitFields, r *Refusal) (Response, *B) {
	m := r.Buffer
	if len(r.Without)+len(r.Counts) > 0 || l.reject.hasOrigin {
		return l.TooManyRequests(*r), nil
	}
	m.state = l.appendState(m.state[:0], r)
	hash := l.seed
	for _, v := range m.state {
		hash = (hash ^ uint64(v)) * 0x9E3779B97F4A7C15
	}
	slot := &c.slots[hash>>56]
	if k := slot.kept.Load(); k != nil && k.of == l && slices.Equal(k.state, m.state) {
		m.body = append(m.body[:0], k.response.Body...)
		if k.idAt >= 0 {
			copy(m.body[k.idAt:], r.RequestID)
		}
		return Response{k.response.Status, k.response.Fields, m.body}, k.block
	}
	answer := l.TooManyRequests(*r)
	switch missed := slot.missed.Load(); {
	case missed>>8 != hash>>8:
		slot.missed.Store(hash &^ 0xff)
	case missed&0xff < cacheAfter-1:
		slot.missed.Store(missed + 1)
	default:
		if k := c.keep(answer, r.RequestID); k != nil {
			k.of, k.state = l, slices.Clone(m.state)
			slot.kept.Store(k)
		}
	}
	return answer, nil
}

// keep returns a copy of a response, or nil if the id of the request is in one of its fields or more than once in its
// body.
func (c *Cache[B]) keep(answer Response, id string) *cachedRefusal[B] {
	k := &cachedRefusal[B]{idAt: bytes.Index(answer.Body, []byte(id))}
	if id == "" || bytes.LastIndex(answer.Body, []byte(id)) != k.idAt {
		return nil
	}
	k.response = Response{Status: answer.Status, Fields: slices.Clip(slices.Clone(answer.Fields)),
		Body: bytes.Clone(answer.Body)}
	for i := range k.response.Fields {
		f := &k.response.Fields[i]
		if strings.Contains(f.Value, id) {
			return nil
		}
		f.Value = strings.Clone(f.Value)
	}
	if k.block = c.render(k.response.Fields[:len(k.response.Fields)-1]); k.block == nil { // all but Content-Length
		return nil
	}
	return k
}

// appendState appends all that distinguishes the response to r from others of l, except for the request id and Without.
func (l *RateLimitFields) appendState(state []int64, r *Refusal) []int64 {
	state = append(state, l.retryAfter(r))
	for i := range r.Decision.Outcomes {
		p := l.policyOf(&r.Verdict, i)
		if p == nil {
			state = append(state, -1)
			continue
		}
		o := &r.Decision.Outcomes[i]
		flags := int64(0)
		if o.Allowed {
			flags |= 1
		}
		if o.Unknown {
			flags |= 2
		}
		state = append(state, flags, int64(p.index), p.remaining(o), p.reset(o))
	}
	return state
}
