package key

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A PartKind is the kind of a part of a phone number.
type PartKind string

// The parts.
const (
	Country  PartKind = "country"   // the ISO 3166 code, "CN"
	DialCode PartKind = "dial_code" // "+86"
	Prefix   PartKind = "prefix"    // the number without its last digits, "+861380013"
)

// A Part is the part of a phone number that a key uses.
type Part struct {
	Kind PartKind
	Drop int // digits that Prefix omits, 1 to 10
}

// ParsePart parses "country", "dial_code" or "prefix"; drop is used only for prefix, and
// must be 0 for the others. Errors wrap ErrSpec and contain what to write.
func ParsePart(s string, drop int) (Part, error) {
	p := Part{Kind: PartKind(s), Drop: drop}
	switch isPrefix := p.Kind == Prefix; {
	case !isPrefix && p.Kind != Country && p.Kind != DialCode:
		return Part{}, fmt.Errorf("%w: %q is not a part of a phone number; write %s, %s or %s", ErrSpec, s, Country,
			DialCode, Prefix)
	case !isPrefix && drop != 0:
		return Part{}, fmt.Errorf("%w: a %s has no drop_last; leave it out, or write part: %s", ErrSpec, s, Prefix)
	case isPrefix && (drop < 1 || drop > 10):
		return Part{}, fmt.Errorf("%w: a prefix that drops %d digits; write drop_last with 1 to 10, for example 4",
			ErrSpec, drop)
	}
	return p, nil
}

// of returns the part of n. A prefix keeps at least the country code.
func (p Part) of(n Number) string {
	switch p.Kind {
	case Country:
		return n.Country
	case DialCode:
		return n.Dial
	}
	return n.E164[:max(len(n.Dial), len(n.E164)-p.Drop)]
}

// text validates a value of p in a list, and returns it in the form of of.
func (p Part) text(s string) (string, error) {
	if p.Kind == Country {
		return country3166(s)
	}
	dialed, extension, ok := dialedDigits(s)
	digits := strings.TrimPrefix(dialed, "+")
	if !ok || extension {
		return "", fmt.Errorf("%w: no %s; write a plus and digits", ErrSpec, p.Kind)
	}
	if n := codeLength(digits); n == 0 || n < len(digits) && p.Kind != Prefix {
		return "", fmt.Errorf("%w: no numbers have such a %s; write for example +86", ErrSpec, p.Kind)
	}
	return "+" + digits, nil
}

// country3166 returns s if it is a country of ISO 3166, or 001 for services of no country.
func country3166(s string) (string, error) {
	const unnumbered = "AQ BV GS HM PN TF UM" // have no calling code of their own
	known := func(s string) bool {
		return codeOf(s) != 0 || len(s) == 2 && slices.Contains(strings.Fields(unnumbered), s)
	}
	upper := strings.ToUpper(s)
	meant := cmp.Or(map[string]string{"UK": "GB", "EN": "GB", "EL": "GR"}[upper], upper)
	switch {
	case known(s) || s == nonGeographic:
		return s, nil
	case known(meant):
		return "", fmt.Errorf("%w: not a country of ISO 3166; write %s", ErrSpec, meant)
	}
	return "", fmt.Errorf("%w: not a country; write two capital letters of ISO 3166, for example CN", ErrSpec)
}
