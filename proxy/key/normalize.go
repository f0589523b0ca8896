package key

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// A Step is one step of the normalization of a value: it maps different spellings to one
// form.
type Step string

// The steps.
const (
	Trim   Step = "trim"   // removes whitespace at both ends
	Lower  Step = "lower"  // converts letters to lower case
	NFKC   Step = "nfkc"   // Unicode's form NFKC: full-width letters become plain, accents one character with their letter
	Fold   Step = "fold"   // case folding and form NFC, without invisible characters: JOSÉ and josé, ſ and s, ß and ss
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
	case NFKC:
		return norm.NFKC.String(s)
	case Fold:
		return fold(s)
	case Digits:
		return digits(s)
	}
	return s
}

// dropsLineBreak reports whether the step removes a line break at the end.
func (step Step) dropsLineBreak() bool { return step == Trim || step == Digits || step == E164 }

// fold returns the form of s in which spellings are equal that databases compare as equal without regard to case.
func fold(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return strings.ToLower(s)
	}
	s = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			return -1
		}
		return r
	}, norm.NFD.String(s))
	return norm.NFC.String(cases.Fold().String(s))
}

// digits returns the characters 0-9 of s.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, s)
}
