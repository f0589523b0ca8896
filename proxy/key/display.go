package key

import "strings"

// A Display says how people see keys that they look up, or that are shown among
// others. What tells of nobody stands as it is, the country of a phone number for
// example; addresses as Address writes them, and not at all where that is empty;
// everything else is masked, whether or not it is said to be sensitive: it may be a
// token, or a name.
type Display struct {
	Address func(text string) string
}

// Value is the key that v holds: "ip=192.0.2.1 phone=+86138****8000".
func (d Display) Value(v *Value) string {
	shapes, texts := make([]Shape, len(v.leaves)), make([]string, len(v.leaves))
	for i, l := range v.leaves {
		shapes[i], texts[i] = l.spec.shape(), l.text
	}
	return d.Texts(shapes, texts)
}

// A Shape is how the text of a key is shown. It outlives the key's Spec, and holds
// nothing of it.
type Shape struct {
	Name string
	kind shapeKind
}

type shapeKind uint8

const (
	shapeMasked  shapeKind = iota
	shapeOpen              // it tells of nobody
	shapeAddress           // of a client
	shapeNumber            // of a phone, or the beginning of one
)

// Shapes are those of the keys that s is joined of, or of s alone.
func (s *Spec) Shapes() []Shape {
	var all []Shape
	for _, leaf := range s.Leaves() {
		all = append(all, leaf.shape())
	}
	return all
}

func (s *Spec) shape() Shape {
	switch {
	case s.Of != nil && s.Part.Kind != Prefix, s.From.Source == Host, s.From.Source == Method:
		return Shape{s.Name, shapeOpen}
	case s.From.Source == ClientIP:
		return Shape{s.Name, shapeAddress}
	case s.Phone != nil, s.Of != nil:
		return Shape{s.Name, shapeNumber}
	}
	return Shape{s.Name, shapeMasked}
}

// Texts is a key of these shapes and texts. A text that is not known is "", and one for
// which there is no text is left out.
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

// dialLength is how many bytes of a number in E.164, or of the beginning of one, are
// its country code; 0 if it has none.
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

// Texts appends the texts of the key extracted last, one for each key that it is
// joined of.
func (v *Value) Texts(to []string) []string {
	for _, l := range v.leaves {
		to = append(to, l.text)
	}
	return to
}

// Leaves are the keys that s is joined of, or s alone.
func (s *Spec) Leaves() []*Spec {
	if s.Join == nil {
		return []*Spec{s}
	}
	var all []*Spec
	for _, part := range s.Join {
		all = append(all, part.Leaves()...)
	}
	return all
}
