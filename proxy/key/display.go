package key

import "strings"

// A Display formats keys for operators. Values that identify nobody, such as the country of
// a phone number, are shown; addresses are formatted by Address, and omitted if it returns
// ""; all other values are masked, whether or not their key is sensitive, because they may
// be tokens or names.
type Display struct {
	Address func(text string) string
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
	Name string
	kind shapeKind
}

type shapeKind uint8

const (
	shapeMasked  shapeKind = iota
	shapeOpen              // identifies nobody
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

func (s *Spec) shape() Shape {
	switch {
	case s.Of != nil && s.Part.Kind != Prefix, table[s.From.Source].isOpen:
		return Shape{s.Name, shapeOpen}
	case s.From.Source.IsAddress():
		return Shape{s.Name, shapeAddress}
	case s.Phone != nil, s.Of != nil:
		return Shape{s.Name, shapeNumber}
	}
	return Shape{s.Name, shapeMasked}
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
			b.WriteByte('=')
			b.WriteString(shown)
		}
	}
	return b.String()
}

func (d Display) text(s Shape, text string) string {
	switch {
	case text == "":
		return ""
	case s.kind == shapeOpen:
		return text
	case s.kind == shapeAddress:
		return d.Address(text)
	case s.kind == shapeNumber:
		return Mask(text, dialLength(text))
	}
	return Mask(text, 0)
}

// dialLength returns the length of the country code in an E.164 number or a prefix of one;
// 0 if it has none.
func dialLength(text string) int {
	digits, found := strings.CutPrefix(text, "+")
	if !found {
		return 0
	}
	code := 0
	for i := 0; i < 3 && i+minNational < len(digits) && isDigit(digits[i]); i++ {
		code = code*10 + int(digits[i]-'0')
		if len(regionsOf(code)) > 0 {
			return len("+") + i + 1
		}
	}
	return 0
}

// Texts appends the texts of the key extracted last, one for each key that it joins.
func (v *Value) Texts(to []string) []string {
	for _, l := range v.components {
		to = append(to, l.text)
	}
	return to
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
