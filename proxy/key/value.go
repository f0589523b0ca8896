package key

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A Value holds the keys extracted from one request. The zero Value is ready for use; Reset
// prepares it for the next request. It caches expensive results (a lookup in a body, a
// verified token, a phone number), so that several keys derived from them cost no more than
// one. It must not be used concurrently.
type Value struct {
	// Parts are the names and texts that Extract found; one of each unless keys were
	// joined.
	Parts []string
	// Skip is true if the key is missing and limits on it do not apply.
	Skip bool
	// Set lists the header fields to set for the upstream, for all keys extracted since
	// Reset, one for each name. They replace those of the client; an empty Value means that
	// the field is not sent.
	Set []Field

	leaves []leaf // Parts, for display and lists
	memory []cached
	token  token
	last   found             // the client whose address was formatted last
	json   *jsontext.Decoder // reads from buffer
	buffer bytes.Buffer
}

// A Field is a header field.
type Field struct{ Name, Value string }

// A leaf is one text of a key.
type leaf struct {
	spec *Spec
	found
	known bool // false for the shared key of requests without one
}

// found is the result of reading a key.
type found struct {
	text    string
	kind    kind
	number  Number       // if it is a phone number
	network netip.Prefix // if it is a client address
}

// cached is a result of reading a key, or its error.
type cached struct {
	spec *Spec
	found
	err error
}

// A kind is the JSON type of a text. All other sources have only strings, and extracted
// keys are never numbers or booleans: see canonicalJSON.
type kind uint8

const (
	text    kind = iota // a string
	numeral             // a number
	boolean             // true or false
	null
)

// Reset prepares v for the next request, and keeps its allocations.
func (v *Value) Reset() {
	clear(v.Parts[:cap(v.Parts)])
	clear(v.Set[:cap(v.Set)])
	clear(v.leaves[:cap(v.leaves)])
	clear(v.memory[:cap(v.memory)])
	v.Parts, v.Skip, v.Set = v.Parts[:0], false, v.Set[:0]
	v.leaves, v.memory, v.token = v.leaves[:0], v.memory[:0], token{}
	v.buffer = bytes.Buffer{}
}

// Text returns the normalized text of the key extracted last, "" if it is joined, missing
// or skipped. It is personal data and must not be logged.
func (v *Value) Text() string {
	if len(v.leaves) != 1 {
		return ""
	}
	return v.leaves[0].text
}

// Shown formats the key extracted last for display, with the texts of sensitive keys
// masked: "ip=192.0.2.1 phone=+86138****8000".
func (v *Value) Shown() string {
	var b strings.Builder
	for i, l := range v.leaves {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(l.spec.Name)
		if l.known && l.text != "" {
			b.WriteByte('=')
			b.WriteString(l.shown())
		}
	}
	return b.String()
}

// add appends the name and the text of s. The name is included, so that different keys with
// the same text have different counts.
func (v *Value) add(s *Spec, f found) {
	v.Parts = append(v.Parts, tag(s.Name, f.kind), f.text)
	v.leaves = append(v.leaves, leaf{spec: s, found: f, known: true})
}

// share appends the shared key of requests without a text.
func (v *Value) share(s *Spec, name string) {
	v.Parts = append(v.Parts, name)
	v.leaves = append(v.leaves, leaf{spec: s})
}

// tag returns the name under which texts of a kind are counted, so that null and the string
// "null" are different keys. Names never contain NUL.
func tag(name string, k kind) string {
	if k == null {
		return name + "\x00null"
	}
	return name
}

// set sets the header field name to text for the upstream, or removes it if text is empty.
func (v *Value) set(name, text string) {
	if name == "" {
		return
	}
	for i := range v.Set {
		if v.Set[i].Name == name {
			v.Set[i].Value = text
			return
		}
	}
	v.Set = append(v.Set, Field{name, text})
}
