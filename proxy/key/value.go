package key

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weir-proxy/weir/proxy/reuse"
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

	components []component // Parts, for display and lists
	cache      []cacheEntry
	token      token
	network    netip.Prefix // the client whose address was formatted last
	address    string
	json       *jsontext.Decoder // reads from buffer
	buffer     bytes.Buffer
}

// A Field is a header field.
type Field struct{ Name, Value string }

// A component is one text of a key.
type component struct {
	spec *Spec
	result
	hasText bool // false for the shared key of requests without one
}

// A result is the result of reading a key.
type result struct {
	text      string
	kind      jsonKind
	lineBreak bool         // a line break behind text was removed, which only some servers do
	number    Number       // if it is a phone number
	network   netip.Prefix // if it is a client address
}

// A cacheEntry is a cached result of reading a key, or its error.
type cacheEntry struct {
	spec *Spec
	result
	err error
}

// A jsonKind is the JSON type of a text. All other sources have only strings, and
// extracted keys are never numbers or booleans: see canonicalJSON.
type jsonKind uint8

const (
	kindString jsonKind = iota // a string
	kindNumber                 // a number
	kindBool                   // true or false
	kindNull
)

// Reset prepares v for the next request, and keeps its allocations.
func (v *Value) Reset() {
	parts, set, components, cache := reuse.Memory(v.Parts), reuse.Memory(v.Set), reuse.Memory(v.components), reuse.Memory(v.cache)
	network, address, json := v.network, v.address, v.json
	*v = Value{}
	v.Parts, v.Set, v.components, v.cache, v.network, v.address, v.json = parts, set, components, cache, network, address, json
}

// Text returns the normalized text of the key extracted last, "" if it is joined, missing
// or skipped. It is personal data and must not be logged.
func (v *Value) Text() string {
	if len(v.components) != 1 {
		return ""
	}
	return v.components[0].text
}

// Shown formats the key extracted last for display, with addresses: "ip=192.0.2.1 phone=+86138****8000".
func (v *Value) Shown() string { return Display{}.Value(v) }

// Masked is like Shown, for documents that are passed on: see Display.All.
func (v *Value) Masked() string { return Display{All: true}.Value(v) }

// count adds the text of c to Parts. The name is included, so that different keys with the same text have different
// counts, and so are null and the string "null". Names never contain NUL.
func (v *Value) count(c *component) {
	c.hasText = true
	name := c.spec.Name
	if c.kind == kindNull {
		name += "\x00null"
	}
	v.Parts = append(v.Parts, name, c.text)
}

// add adds a component without text. It is large, so it is filled in place.
func (v *Value) add(s *Spec) *component {
	n := len(v.components)
	v.components = slices.Grow(v.components, 1)[:n+1]
	c := &v.components[n]
	*c = component{}
	c.spec = s
	return c
}

// setField sets the header field name to text for the upstream, or removes it if text is
// empty.
func (v *Value) setField(name, text string) {
	if name == "" {
		return
	}
	i := slices.IndexFunc(v.Set, func(f Field) bool { return f.Name == name })
	if i < 0 {
		i, v.Set = len(v.Set), append(v.Set, Field{Name: name})
	}
	v.Set[i].Value = text
}
