package key

import "strings"

// A Step is one step of the normalization of a value: it maps different spellings to one
// form.
type Step string

// The steps.
const (
	Trim   Step = "trim"   // removes whitespace at both ends
	Lower  Step = "lower"  // converts letters to lower case
	Digits Step = "digits" // removes all characters except 0-9; digits of other scripts are refused
	E164   Step = "e164"   // converts a phone number to +8613800138000; see Phone
)

// Apply applies the step to s. E164 returns s unchanged: it requires a Phone.
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

// dropsLineBreak reports whether the step removes a line break at the end.
func (step Step) dropsLineBreak() bool { return step != Lower }

// digits returns the characters 0-9 of s.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, s)
}
