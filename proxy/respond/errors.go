package respond

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// An ErrorText replaces the problem documents of one status. In Detail, Body and the values of Fields
// {retry_after} is replaced by the seconds of Retry-After, 0 if there is none, {request_id} by the id of
// the request, and {status} by the status, {origin} as in a Reject. Without Detail and Body the document stays as it is.
type ErrorText struct {
	Detail      string
	Fields      []Field
	Body        string // in place of a problem, unless empty
	ContentType string // of Body; for JSON and HTML placeholders are escaped
}

// ErrorTexts replace the problem documents that are configured. They are immutable. Nil replaces none.
type ErrorTexts struct{ byStatus map[int]*compiledReject }

// NewErrorTexts returns the ErrorTexts of these statuses, nil if there are none.
func NewErrorTexts(texts map[int]ErrorText) *ErrorTexts {
	if len(texts) == 0 {
		return nil
	}
	e := &ErrorTexts{map[int]*compiledReject{}}
	for status, t := range texts {
		c := compileReject(Reject{Status: status, Detail: t.Detail, Fields: t.Fields, Body: t.Body, ContentType: t.ContentType})
		kind, title := problemType(status)
		c.prefix = string(appendProblem(nil, kind, title, status)) + detailMember
		if t.Detail == "" {
			c.detail = template{}
		}
		e.byStatus[status] = &c
	}
	return e
}

// Replace returns a response of Weir itself with the configured text, if there is one for its status. origin is the
// field Origin of the request.
// The fields that tell more about it, such as Allow and Retry-After, stay unless
// they are configured too.
func (e *ErrorTexts) Replace(a Response, requestID, origin string) Response {
	if e == nil || e.byStatus[a.Status] == nil {
		return a
	}
	c := e.byStatus[a.Status]
	s := &substitutions{retryAfter: cmp.Or(a.Field("Retry-After"), "0"), requestID: requestID, status: c.statusText, origin: checkedOrigin(origin)}
	m := Buffer{body: a.Body}
	switch {
	case c.customBody:
		m.body = c.body.append(nil, s)
	case len(c.detail.parts) > 0:
		m.body = append(c.detail.append([]byte(c.prefix), s), '"')
		m.body = append(appendID(m.body, requestID), "}\n"...)
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
