package proxy

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/key"
)

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
	b = b[:0]
	if made, plain := b.document(fields); plain {
		return made
	}
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
		return append(b, form.Encode()...)
	}
	made, err := json.Marshal(document)
	if err != nil {
		return b // strings can always be marshalled
	}
	return append(b, made...)
}

// document builds a document if all JSON fields are at its top level, as is usual, without
// allocating. plain is false if a field is nested or there is none.
func (b loggedBody) document(fields []LoggedField) (made loggedBody, plain bool) {
	for i, f := range fields {
		if f.Origin.Source != key.JSON || f.Value == "" {
			continue
		}
		if strings.ContainsAny(f.Origin.Name[1:], "/~") {
			return b, false
		}
		again := func(later LoggedField) bool { return later.Origin == f.Origin && later.Value != "" }
		if slices.ContainsFunc(fields[i+1:], again) {
			continue // the last value is used
		}
		if made == nil {
			made = append(b, '{')
		} else {
			made = append(made, ',')
		}
		made = append(made.appendString(f.Origin.Name[1:]), ':').appendString(f.Value)
	}
	if made == nil {
		return b, false
	}
	return append(made, '}'), true
}

// appendString appends s as a JSON string.
func (b loggedBody) appendString(s string) loggedBody {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				return b // strings can always be marshalled
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
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
