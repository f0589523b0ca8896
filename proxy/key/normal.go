package key

import "strings"

// A Step is one way of normalization: it brings different spellings of a value into one
// form.
type Step string

// The steps.
const (
	Trim   Step = "trim"   // whitespace at both ends are dropped
	Lower  Step = "lower"  // letters become lower case
	Digits Step = "digits" // all but 0-9 is dropped; digits of other scripts are refused
	E164   Step = "e164"   // a phone number becomes +8613800138000; see Phone
)

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

// digits keeps 0-9 of s.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, s)
}
