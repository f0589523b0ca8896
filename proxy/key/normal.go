package key

import (
	"fmt"
	"strings"
	"unicode"
)

// A Step is one way to bring different spellings of a value into one form.
type Step string

// The steps there are.
const (
	Trim   Step = "trim"   // blanks at both ends are dropped
	Lower  Step = "lower"  // letters become lower case
	Digits Step = "digits" // all but decimal digits is dropped; digits of any script become 0-9
	E164   Step = "e164"   // a phone number becomes +8613800138000; see Phone
)

// ParseStep reads the name of a step. Errors wrap ErrSpec and list the steps.
func ParseStep(s string) (Step, error) {
	switch step := Step(s); step {
	case Trim, Lower, Digits, E164:
		return step, nil
	}
	return "", fmt.Errorf("%w: %q is no way to normalize; write %s, %s, %s or %s", ErrSpec, s, Trim, Lower, Digits, E164)
}

// Apply takes the step on s. E164 leaves s as it is: only a Phone can take it.
func (step Step) Apply(s string) string {
	switch step {
	case Trim:
		return strings.TrimSpace(s)
	case Lower:
		return strings.ToLower(s)
	case Digits:
		return digits(s)
	}
	return s
}

// digits keeps the decimal digits of s. Unicode puts the ten digits of a script
// side by side, zero first, so the distance to the nearest non-digit below
// tells the value.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return r
		}
		if !unicode.IsDigit(r) {
			return -1
		}
		return '0' + value(r)
	}, s)
}

// value is that of the decimal digit r. A range of the table may hold several
// sets of ten, as the mathematical digits do, but each range begins at a zero.
func value(r rune) rune {
	for _, span := range unicode.Nd.R16 {
		if rune(span.Lo) <= r && r <= rune(span.Hi) {
			return (r - rune(span.Lo)) % 10
		}
	}
	for _, span := range unicode.Nd.R32 {
		if rune(span.Lo) <= r && r <= rune(span.Hi) {
			return (r - rune(span.Lo)) % 10
		}
	}
	return 0
}
