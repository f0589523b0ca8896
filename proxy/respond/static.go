package respond

import (
	"net/http"
	"strconv"
)

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
	return Static(status, "", "", []Field{{"Location", escapeLocation(to)}})
}

// escapeLocation escapes characters that would end the URL or the header field.
func escapeLocation(to string) string {
	const hex = "0123456789ABCDEF"
	var b []byte
	for i := range len(to) {
		switch c := to[i]; {
		case c <= ' ' || c >= 0x7f || c == '"' || c == '<' || c == '>' || c == '\\':
			b = append(b, '%', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

// WithRateLimitFields returns a with the rate limit fields of an allowed request. It uses the
// buffer of v, or allocates.
func (r Response) WithRateLimitFields(q *RateLimitFields, v Verdict) Response {
	if v.Buffer == nil {
		v.Buffer = new(Buffer)
	}
	m := v.Buffer
	m.Reset()
	m.fields = append(m.fields, r.Fields...)
	q.addFields(&v)
	r.Fields = m.fields
	return r
}
