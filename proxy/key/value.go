package key

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/reuse"
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
	kind      jsontext.Kind // of a JSON value that is no string; extracted keys are never numbers or booleans: see canonicalJSON
	lineBreak bool          // a line break behind text was removed, which only some servers do
	number    Number        // if it is a phone number
	network   netip.Prefix  // if it is a client address
}

// A cacheEntry is a cached result of reading a key, or its error.
type cacheEntry struct {
	spec *Spec
	result
	err error
}

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
	if c.kind == jsontext.KindNull {
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

// A Display formats keys for operators, everywhere by one rule (redaction): the text of a key that is
// not sensitive is shown, that of a sensitive key is masked, and parts of a sensitive phone number that
// identify nobody, such as its country, are shown. A prefix that drops four digits or more is such a part.
type Display struct {
	// Address formats addresses, and returns "" for one that is not shown; nil shows them.
	Address func(text string) string
	// All masks all texts that clients choose, sensitive or not, for documents that are passed on.
	// Addresses, hosts and methods are masked only if they are sensitive.
	All bool
	// Ranges shows prefixes of phone numbers in such documents as elsewhere.
	Ranges bool
}

// Value formats the key in v: "ip=192.0.2.1 phone=+86138****8000".
func (d Display) Value(v *Value) string {
	shapes, texts := make([]Shape, len(v.components)), make([]string, len(v.components))
	for i, l := range v.components {
		shapes[i], texts[i] = l.spec.shape(), l.text
	}
	return d.Texts(shapes, texts)
}

// A Shape determines how the text of a key is shown. It holds no reference to the key's
// Spec.
type Shape struct {
	Name      string
	kind      shapeKind
	sensitive bool
	dropped   int // digits that a prefix of a phone number omits
}

type shapeKind uint8

const (
	shapeText    shapeKind = iota
	shapeOpen              // has few values, such as a host
	shapeAddress           // a client address
	shapeNumber            // a phone number, or a prefix of one
)

// Shapes returns the shapes of the keys that s joins, or of s alone.
func (s *Spec) Shapes() []Shape {
	var all []Shape
	for _, leaf := range s.Components() {
		all = append(all, leaf.shape())
	}
	return all
}

// shape returns the shape of s. Its text may be that of a key that is used instead, so that it is sensitive if one of
// them is.
func (s *Spec) shape() Shape {
	hides := func(one *Spec) bool { return one.Sensitive || one.Secret }
	sensitive := hides(s) || slices.ContainsFunc(s.Replacements(), hides)
	shape := Shape{Name: s.Name, sensitive: sensitive}
	switch {
	case s.Of != nil && s.Part.Kind == Prefix:
		return Shape{s.Name, shapeNumber, sensitive || s.Of.Sensitive, s.Part.Drop}
	case s.Of != nil, table[s.From.Source].isOpen, s.From.Source.IsConstant():
		shape.kind = shapeOpen
	case s.From.Source.IsAddress():
		shape.kind = shapeAddress
	case s.Phone != nil:
		shape.kind = shapeNumber
	}
	return shape
}

// IsConcealed reports whether values of s in lists and overrides are not shown: s, or a key that it consists of, is
// sensitive.
func (s *Spec) IsConcealed() bool {
	return slices.ContainsFunc(s.Shapes(), func(one Shape) bool { return one.sensitive })
}

// Texts formats a key with these shapes and texts. Unknown texts are ""; those for which
// nothing is shown are omitted.
func (d Display) Texts(shapes []Shape, texts []string) string {
	var b strings.Builder
	for i, s := range shapes {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(s.Name)
		if i >= len(texts) {
			continue
		}
		if shown := d.text(s, texts[i]); shown != "" {
			b.WriteString("=" + shown)
		}
	}
	return b.String()
}

// text returns what is shown of a text. It is the only function that decides that.
func (d Display) text(s Shape, text string) string {
	if s.kind == shapeAddress && d.Address != nil {
		text = d.Address(text)
	}
	masked := s.sensitive || d.All && (s.kind == shapeText || s.kind == shapeNumber)
	switch {
	case text == "" || !masked:
		return text
	case s.dropped > 0 && (!d.All || d.Ranges):
		return maskPrefix(text, s.dropped)
	case s.kind == shapeNumber:
		return Mask(text, dialLength(text))
	}
	return Mask(text, 0)
}

// hiddenDigits is how many digits of a long phone number Mask hides. As many numbers have what is shown
// in common as there are such digits.
const hiddenDigits = 4

// maskPrefix returns a prefix of a phone number for display: so much of it that with the digits it omits
// hiddenDigits are unknown.
func maskPrefix(text string, dropped int) string {
	stars := min(max(hiddenDigits-dropped, 0), len(text)-dialLength(text))
	return text[:len(text)-stars] + strings.Repeat("*", stars)
}

// Mask returns a sensitive text for display (redaction): enough to distinguish texts, not
// enough to identify one. head is the length of a leading country code, which is shown, or
// 0. Of a phone number with eleven or more digits after its country code, it shows the
// first three and the last four digits; of any other text at most half, evenly from both
// ends, and at most four characters at each end. In texts that are not phone numbers, the
// hidden part is always four stars, which hides its length.
func Mask(s string, head int) string {
	number := s[head:]
	n := utf8.RuneCountInString(number)
	first, last := min(n/4, 4), min(n/4, 4)
	stars := 4
	if head > 0 {
		if n >= 11 {
			first, last = 3, 4
		}
		stars = n - first - last
	}
	runes := []rune(number)
	return s[:head] + string(runes[:first]) + strings.Repeat("*", stars) + string(runes[n-last:])
}

// dialLength returns the length of the country code in an E.164 number or a prefix of one;
// 0 if it has none.
func dialLength(text string) int {
	digits, found := strings.CutPrefix(text, "+")
	if !found {
		return 0
	}
	if n := codeLength(digits); n > 0 && n+minNational <= len(digits) {
		return len("+") + n
	}
	return 0
}

// Components returns the keys that s joins, or s alone.
func (s *Spec) Components() []*Spec {
	if s.Join == nil {
		return []*Spec{s}
	}
	var all []*Spec
	for _, part := range s.Join {
		all = append(all, part.Components()...)
	}
	return all
}

// Hash returns the key under which the parts found by Extract are counted. With a secret it
// is an HMAC-SHA256: without the secret, the parts cannot be found from the key by brute
// force. An empty secret means none.
//
// Secret rotation (privacy.previous_secret in the configuration) keeps all counts. First,
// all proxies get both secrets. From then on each request claims its limits under both keys
// in one decision: all are granted, or none is taken. So permits count under the previous
// key, whether they were taken before the change or by a proxy that has not been changed
// yet, and new permits count under both. When the longest window of all limits has passed
// since the last proxy was changed, the new keys have all counts, and the previous secret
// can be removed. Meanwhile each limit costs one more claim; scripts and stores are not
// affected.
func Hash(secret string, parts []string) limiter.Key {
	if secret == "" {
		return limiter.KeyOf(parts...)
	}
	return limiter.KeyWithSecret([]byte(secret), parts...)
}

// maxMemo is the length of the longest parts that a Memo remembers.
const maxMemo = 128

// A Memo remembers the last key that it has hashed: most clients have one, and send many requests over a connection.
// The zero Memo is ready for use. It must not be used concurrently.
type Memo struct {
	secret string
	parts  []byte // each one behind its length
	missed uint8  // keys that were not remembered
	limiter.Key
}

// Hash is the function Hash.
func (m *Memo) Hash(secret string, parts []string) limiter.Key {
	if m.secret == secret && m.remembers(parts) {
		return m.Key
	}
	m.missed++
	if m.missed%8 != 1 { // remembering is not free, and in vain if all keys differ
		return Hash(secret, parts)
	}
	m.secret, m.parts, m.Key = secret, m.parts[:0], Hash(secret, parts)
	for _, p := range parts {
		if len(m.parts)+len(p) >= maxMemo {
			m.parts = m.parts[:0]
			break
		}
		m.parts = append(append(m.parts, byte(len(p))), p...)
	}
	return m.Key
}

// remembers reports whether the last key was that of these parts.
func (m *Memo) remembers(parts []string) bool {
	rest := m.parts
	for _, p := range parts {
		if len(rest) <= len(p) || int(rest[0]) != len(p) || string(rest[1:1+len(p)]) != p {
			return false
		}
		rest = rest[1+len(p):]
	}
	return len(rest) == 0 && len(m.parts) > 0
}
