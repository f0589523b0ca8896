package proxy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/key"
)

// A LoggedRequest is a request as recorded in an access log.
type LoggedRequest struct {
	At   time.Time     // when the request arrived
	Took time.Duration // until the response was sent; 0 if the log has no duration

	Method string
	Host   string // empty if the log has no host
	Target string // path and query as sent
	Proto  string // HTTP/1.1 when empty
	Scheme string // http when empty
	Client netip.Addr
	Status int // 0 if the outcome is unknown
	// Fields are the other values that the log has of the request. A field with an empty value was
	// not sent. Nothing is known of a field that is not listed.
	Fields []LoggedField
	// Body is the complete body if HasBody is true.
	Body    string
	HasBody bool
	// Own reports that the line is of Weir's own log; only then what follows may be set. Route is the route that
	// matched, and Listener what the request came by if it was not to be forwarded. Keys is the field
	// keys, which identifies the keys of the request. Limit is the limit that refused the request, and
	// List the list that decided about it. Repeated reports that the request repeated one that was
	// counted, and Rejected that it was rejected before limits were evaluated.
	Own                bool
	Route, Listener    string
	Keys, Limit, List  string
	Repeated, Rejected bool
	// CachedRefusal names the limits whose refusal the store repeated, without evaluating the others.
	CachedRefusal string
	// Redacted reports that the log omits the query and has * for path parameters that are keys, as
	// Weir's own log does.
	Redacted bool
}

// A LoggedField is one value of a request in the log.
type LoggedField struct {
	Origin key.Origin // a header field, a cookie, a query parameter, or a value in the body
	Value  string
}

// knows reports whether the log has the value at o of this request. x must have its route.
func (l *LoggedRequest) knows(o key.Origin, x *exchange) bool {
	switch s := o.Source; {
	case s.IsAddress():
		return l.Client.IsValid()
	case s == key.Host:
		return l.Host != ""
	case s == key.Path:
		return !l.Redacted || x.Param(o.Name) != "*"
	case !s.IsNamed():
		return true
	case !s.IsLogged():
		return false // a log should not contain tokens
	}
	return slices.ContainsFunc(l.Fields, func(f LoggedField) bool { return f.Origin == o }) ||
		o.Source == key.Query && !l.Redacted ||
		o.Source == key.Cookie && l.has(key.HeaderField("Cookie")) ||
		o.Source.IsBody() && l.HasBody
}

func (l *LoggedRequest) has(o key.Origin) bool {
	return slices.ContainsFunc(l.Fields, func(f LoggedField) bool { return f.Origin == o })
}

// A loggedHeader is the part of a request's header that the log has.
type loggedHeader []loggedLine

type loggedLine struct {
	name  string
	value [1]string
}

// Values implements fields.
func (h *loggedHeader) Values(name string) []string {
	for i := range *h {
		if l := &(*h)[i]; l.name == name {
			return l.value[:]
		}
	}
	return nil
}

func (h *loggedHeader) add(name, value string) {
	*h = append(*h, loggedLine{name, [1]string{value}})
}

// A replayed is a request with its exchange, header and body.
type replayed struct {
	x      exchange
	header loggedHeader
	body   loggedBody
}

// fill sets the exchange from q, whose strings must remain valid until the stages have run. host is
// used if the log has no host.
func (r *replayed) fill(q *LoggedRequest, host string) {
	x := &r.x
	x.request.Method, x.request.RequestTarget, x.request.Proto, x.in.scheme = q.Method, q.Target, cmp.Or(q.Proto, "HTTP/1.1"), q.Scheme
	x.request.HostField = cmp.Or(q.Host, host)
	x.in.peer = netip.AddrPortFrom(q.Client, 0)
	x.id = "-"
	r.header, r.body = r.header[:0], append(r.body[:0], q.Body...)
	if len(q.Fields) > 0 {
		r.fields(q)
	}
	x.in.header, x.in.length, x.in.body = &r.header, int64(len(r.body)), &r.body
	if len(r.body) > 0 && len(r.header.Values("Content-Type")) == 0 {
		kind := "application/x-www-form-urlencoded"
		if r.body[0] == '{' {
			kind = "application/json"
		}
		r.header.add("Content-Type", kind)
	}
}

// fields adds the values of the log where the stages read them.
func (r *replayed) fields(q *LoggedRequest) {
	var query, cookie url.Values
	for _, f := range q.Fields {
		if f.Value == "" {
			continue
		}
		switch f.Origin.Source {
		case key.Header:
			r.header.add(f.Origin.Name, f.Value)
		case key.Cookie:
			cookie = addValue(cookie, f)
		case key.Query:
			query = addValue(query, f)
		}
	}
	if cookie != nil {
		r.header.add("Cookie", strings.ReplaceAll(strings.ReplaceAll(cookie.Encode(), "+", "%20"), "&", "; "))
	}
	if query != nil && q.Redacted {
		r.x.request.RequestTarget += "?" + query.Encode()
	}
	if !q.HasBody {
		r.body = r.body.build(q.Fields)
	}
}

func addValue(v url.Values, f LoggedField) url.Values {
	if v == nil {
		v = url.Values{}
	}
	v.Set(f.Origin.Name, f.Value)
	return v
}

// A loggedBody is the body of a replayed request: from the log, or built from the logged fields.
// Its memory is reused for the next request.
type loggedBody []byte

// readAll implements bodyReader.
func (b *loggedBody) readAll(maxBytes int64) ([]byte, error) {
	if int64(len(*b)) > maxBytes {
		return nil, fmt.Errorf("%w: more than %d bytes", key.ErrBodyTooLarge, maxBytes)
	}
	return *b, nil
}

// build builds a body from fields: a JSON document if there is a JSON field, otherwise a form.
func (b loggedBody) build(fields []LoggedField) loggedBody {
	var form url.Values
	var document map[string]any
	for _, f := range fields {
		switch {
		case f.Value == "":
		case f.Origin.Source == key.JSON:
			document = setPointer(document, f.Origin.Name, f.Value)
		case f.Origin.Source.IsBody():
			form = addValue(form, f)
		}
	}
	if document == nil {
		return append(b[:0], form.Encode()...)
	}
	made, err := json.Marshal(document)
	if err != nil {
		return b[:0] // strings can always be marshalled
	}
	return append(b[:0], made...)
}

// setPointer sets the value at a JSON pointer.
func setPointer(document map[string]any, pointer, text string) map[string]any {
	if document == nil {
		document = map[string]any{}
	}
	at := document
	names := strings.Split(pointer[1:], "/")
	for i, name := range names {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		if i == len(names)-1 {
			at[name] = text
			break
		}
		inner, ok := at[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			at[name] = inner
		}
		at = inner
	}
	return document
}
