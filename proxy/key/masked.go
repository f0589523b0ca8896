package key

import "strings"

// Masked is like Shown, with all texts masked that clients choose, sensitive or not, for
// documents that are passed on. Addresses, hosts, methods and countries are not masked.
func (v *Value) Masked() string {
	var b strings.Builder
	for i, l := range v.components {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(l.spec.Name)
		if l.hasText && l.text != "" {
			b.WriteByte('=')
			b.WriteString(l.masked())
		}
	}
	return b.String()
}

// masked returns the text of c, masked if clients choose it.
func (c component) masked() string {
	s := c.spec
	if s.Of != nil && s.Part.Kind != Prefix {
		return c.text
	}
	if from := table[s.From.Source]; from.isAddress || from.isOpen || from.isConstant {
		return c.shown()
	}
	return Mask(c.text, len(c.number.Dial))
}
