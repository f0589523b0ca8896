package key

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A Value is what keys were found to be in one request. The zero Value is ready
// for the first request; Reset makes it ready for the next. It remembers what
// is dear to find (a place in a body, a verified token, a phone number), so
// that several keys made of it cost it once.
type Value struct {
	// Parts are what Extract found: names and texts, one of each unless keys
	// were joined.
	Parts []string
	// Skip says that the key is missing and limits on it do not apply.
	Skip bool
	// Set lists the fields to be set for the upstream, of all keys extracted
	// since Reset, one of each name. It replaces what the client sent; an empty
	// Value means that the field is not sent at all.
	Set []Field

	leaves []leaf // what Parts are, for people and lists
	memory []memory
	token  token
	last   found             // the client whose address was written last
	json   *jsontext.Decoder // reads from buffer
	buffer bytes.Buffer
}

// A Field is a header field.
type Field struct{ Name, Value string }

// A leaf is one text of a key.
type leaf struct {
	spec *Spec
	found
	known bool // false for requests that are counted together for want of a text
}

// found is what a spec finds in a request.
type found struct {
	text    string
	kind    kind
	number  Number       // of a phone
	network netip.Prefix // of the client
}

// memory is what a spec found, or why it did not.
type memory struct {
	spec *Spec
	found
	err error
}

// A kind is what JSON says a text is. All other sources have strings only, and of
// keys that are found none is a number or a truth value: see sent.
type kind uint8

const (
	text    kind = iota // a string
	numeral             // a number
	boolean             // true or false
	null
)

// Reset forgets the request and keeps what was allocated.
func (v *Value) Reset() {
	clear(v.Parts[:cap(v.Parts)])
	clear(v.Set[:cap(v.Set)])
	clear(v.leaves[:cap(v.leaves)])
	clear(v.memory[:cap(v.memory)])
	v.Parts, v.Skip, v.Set = v.Parts[:0], false, v.Set[:0]
	v.leaves, v.memory, v.token = v.leaves[:0], v.memory[:0], token{}
	v.buffer = bytes.Buffer{}
}

// Text is the normalized text of the key extracted last, "" if it is joined,
// missing or skipped. It is the client's: it belongs in no log.
func (v *Value) Text() string {
	if len(v.leaves) != 1 {
		return ""
	}
	return v.leaves[0].text
}

// Shown is the key extracted last as people may see it, with the texts of
// sensitive keys masked: "ip=192.0.2.1 phone=+86138****8000".
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

// add takes up what s found. The name stands first, so that the value of one
// key never counts under another whose text happens to be the same.
func (v *Value) add(s *Spec, f found) {
	v.Parts = append(v.Parts, tag(s.Name, f.kind), f.text)
	v.leaves = append(v.leaves, leaf{spec: s, found: f, known: true})
}

// share counts the request with all others of its kind that have no text.
func (v *Value) share(s *Spec, name string) {
	v.Parts = append(v.Parts, name)
	v.leaves = append(v.leaves, leaf{spec: s})
}

// tag is the name under which texts of a kind count, so that null and the string
// "null" are two keys. No name holds a NUL.
func tag(name string, k kind) string {
	if k == null {
		return name + "\x00null"
	}
	return name
}

// set has the upstream told text in the field name, or nothing if it is empty.
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
