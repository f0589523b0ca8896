package proxy

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/key"
)

// A LoggedRequest is a request as an access log tells of it.
type LoggedRequest struct {
	At   time.Time     // when it came
	Took time.Duration // until its response was sent; 0 where the log does not say

	Method string
	Host   string // "" where the log does not say
	Target string // path and query as they were sent
	Proto  string // HTTP/1.1 when empty
	Scheme string // http when empty
	Client netip.Addr
	Status int // 0 if what came of it is not known
	// Fields are what else the log tells of the request. One that stands here with an
	// empty value was not sent; of one that does not stand here nobody knows.
	Fields []LoggedField
	// Body is the whole body where HasBody says so.
	Body    string
	HasBody bool
	// Redacted says that the log leaves out the query and writes * for parameters of
	// the path that are keys, as Weir's own does.
	Redacted bool
}

// A LoggedField is one thing that a log tells of a request.
type LoggedField struct {
	Origin key.Origin // a header field, a cookie, a parameter of the query, or a value in the body
	Value  string
}

// knows reports whether the log tells of o in this request; x has its route.
func (q *LoggedRequest) knows(o key.Origin, x *exchange) bool {
	switch o.Source {
	case key.Global, key.Method, "":
		return true
	case key.ClientIP:
		return q.Client.IsValid()
	case key.Host:
		return q.Host != ""
	case key.Path:
		return !q.Redacted || x.Param(o.Name) != "*"
	case key.JWT:
		return false // of a token that is verified no log should tell
	}
	return slices.ContainsFunc(q.Fields, func(f LoggedField) bool { return f.Origin == o }) ||
		o.Source == key.Query && !q.Redacted ||
		o.Source == key.Cookie && q.has(key.Origin{Source: key.Header, Name: "Cookie"}) ||
		(o.Source == key.JSON || o.Source == key.Form) && q.HasBody
}

func (q *LoggedRequest) has(o key.Origin) bool {
	return slices.ContainsFunc(q.Fields, func(f LoggedField) bool { return f.Origin == o })
}

// A loggedHeader is the header of a request as far as a log tells of it.
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

// A replayed is a request on its way through the stages, with its header and its body.
type replayed struct {
	x      exchange
	header loggedHeader
	body   loggedBody
}

// fill makes an exchange of q, whose strings have to stay until it has been through the
// stages. host is that of requests whose log tells of none.
func (r *replayed) fill(q *LoggedRequest, host string) {
	x := &r.x
	x.request.Method, x.request.RequestTarget, x.request.Proto, x.in.scheme = q.Method, q.Target, cmp.Or(q.Proto, "HTTP/1.1"), cmp.Or(q.Scheme, "http")
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

// fields puts what the log tells where the stages look for it.
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
			cookie = with(cookie, f)
		case key.Query:
			query = with(query, f)
		}
	}
	if cookie != nil {
		r.header.add("Cookie", strings.ReplaceAll(strings.ReplaceAll(cookie.Encode(), "+", "%20"), "&", "; "))
	}
	if query != nil && q.Redacted {
		r.x.request.RequestTarget += "?" + query.Encode()
	}
	if !q.HasBody {
		r.body = r.body.of(q.Fields)
	}
}

func with(v url.Values, f LoggedField) url.Values {
	if v == nil {
		v = url.Values{}
	}
	v.Set(f.Origin.Name, f.Value)
	return v
}
