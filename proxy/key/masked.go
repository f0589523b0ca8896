package key

import "strings"

// Masked is Shown with all texts masked that clients write, sensitive or not: for
// documents that are passed on. Addresses, hosts, methods and countries stay as they
// are.
func (v *Value) Masked() string {
	var b strings.Builder
	for i, l := range v.leaves {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(l.spec.Name)
		if l.known && l.text != "" {
			b.WriteByte('=')
			b.WriteString(l.masked())
		}
	}
	return b.String()
}

// masked is the text of l, masked if a client has written it.
func (l leaf) masked() string {
	s := l.spec
	if s.Of != nil && s.Part.Kind != Prefix {
		return l.text
	}
	switch s.From.Source {
	case ClientIP, Host, Method, Global:
		return l.shown()
	}
	return Mask(l.text, len(l.number.Dial))
}
