package key

import (
	"strconv"
	"strings"

	"github.com/nyaruka/phonenumbers/v2"
)

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
	var b strings.Builder
	for i, l := range v.leaves {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(l.spec.Name)
		if !l.known {
			continue
		}
		if shown := d.Text(l.spec, l.text); shown != "" {
			b.WriteByte('=')
			b.WriteString(shown)
		}
	}
	return b.String()
}

// Text is a text of s, which is not joined.
func (d Display) Text(s *Spec, text string) string {
	switch {
	case text == "":
		return ""
	case s.Of != nil && s.Part.Kind != Prefix, s.From.Source == Host, s.From.Source == Method:
		return text
	case s.From.Source == ClientIP:
		return d.Address(text)
	case s.Phone != nil, s.Of != nil:
		return Mask(text, dialLength(text))
	}
	return Mask(text, 0)
}

// dialLength is how many bytes of a number in E.164, or of the beginning of one, are
// its country code; 0 if it has none.
func dialLength(text string) int {
	n, err := phonenumbers.Parse(text, noRegion)
	if err != nil {
		return 0
	}
	dial := "+" + strconv.Itoa(int(n.GetCountryCode()))
	if !strings.HasPrefix(text, dial) {
		return 0
	}
	return len(dial)
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
