package respond

import (
	"net/http"
	"strconv"
)

// Static is an answer in the operator's words. Fields may say how it is cached;
// nothing else does. A status that never has a body gets none, whatever body
// holds.
func Static(status int, contentType, body string, fields []Field) Answer {
	a := Answer{Status: status, Fields: append([]Field(nil), fields...)}
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

// Redirect sends a client to another place with a status from 301 to 308. What
// must not stand in a URL is escaped there.
func Redirect(status int, to string) Answer {
	return Static(status, "", "", []Field{{"Location", escapeLocation(to)}})
}

// escapeLocation is to without what would end a URL, or the header, early.
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

// With is a with what is left of the quota, for a request that limits allowed. It is
// made in the memory of v, or in memory of its own.
func (a Answer) With(q *Quota, v Verdict) Answer {
	if v.Memory == nil {
		v.Memory = new(Memory)
	}
	m := v.Memory
	m.Reset()
	m.fields = append(m.fields, a.Fields...)
	q.addFields(v)
	a.Fields = m.fields
	return a
}
