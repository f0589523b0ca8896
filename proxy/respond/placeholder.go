package respond

import (
	"encoding/json"
	"html"
	"mime"
	"strings"
)

// A placeholder is a part of an operator's text that is replaced in each
// response.
type placeholder uint8

const (
	literal placeholder = iota // the text itself
	retryAfter
	limitName
	requestID
)

// placeholders are how they are written.
func (p placeholder) String() string {
	return [...]string{"", "{retry_after}", "{limit}", "{request_id}"}[p]
}

// substitutions are the values of placeholders in one response. Only the id may contain
// characters that must be escaped.
type substitutions struct{ retryAfter, limitName, requestID string }

// A template is an operator's text, taken apart at its placeholders and escaped for
// where it goes, once for all responses.
type template struct {
	parts  []part
	escape escaping // of what is filled in
}

type part struct {
	what placeholder
	text string // of a literal
}

// newTemplate parses text. Literals are passed through within.
func newTemplate(text string, within func(string) string, escape escaping) template {
	t := template{escape: escape}
	for text != "" {
		first, at := literal, len(text)
		for p := retryAfter; p <= requestID; p++ {
			if i := strings.Index(text, p.String()); i >= 0 && i < at {
				first, at = p, i
			}
		}
		if at > 0 {
			t.parts = append(t.parts, part{text: within(text[:at])})
		}
		if first != literal {
			t.parts = append(t.parts, part{what: first})
		}
		text = text[at+len(first.String()):]
	}
	return t
}

// append appends the text with its placeholders filled in. Values are not expanded
// again.
func (t *template) append(b []byte, s substitutions) []byte {
	for _, p := range t.parts {
		switch p.what {
		case literal:
			b = append(b, p.text...)
		case retryAfter:
			b = append(b, s.retryAfter...)
		case limitName:
			b = append(b, s.limitName...)
		case requestID:
			b = t.escape(b, s.requestID)
		}
	}
	return b
}

// An escaping appends s, escaped for a type of text.
type escaping func(b []byte, s string) []byte

// escapingFor returns the escaping for a body of this type.
func escapingFor(contentType string) escaping {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch {
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		return appendWithinJSON
	case kind == "text/html" || kind == "text/xml" || kind == "application/xml" || strings.HasSuffix(kind, "+xml"):
		return appendHTML
	}
	return appendPlain
}

func plain(s string) string { return s }

func appendPlain(b []byte, s string) []byte { return append(b, s...) }

func appendHTML(b []byte, s string) []byte {
	if isSafe(s) {
		return append(b, s...)
	}
	return append(b, html.EscapeString(s)...)
}

// appendWithinJSON appends s, escaped for a JSON string.
func appendWithinJSON(b []byte, s string) []byte {
	if isSafe(s) {
		return append(b, s...)
	}
	return append(b, withinJSON(s)...)
}

// withinJSON returns s, escaped for a JSON string.
func withinJSON(s string) string {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can always be written
	}
	return string(quoted[1 : len(quoted)-1])
}

// isSafe reports whether s needs no escaping in JSON and HTML.
func isSafe(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9': // most are
		case c < ' ' || c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&', c == '\'':
			return false
		}
	}
	return true
}
