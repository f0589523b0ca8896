package key

import (
	"strings"
	"unicode/utf8"
)

// shown is the text of l as people may see it.
func (l leaf) shown() string {
	if l.spec.Of != nil && l.spec.Part.Kind != Prefix { // a country is nobody's
		return l.text
	}
	if !l.spec.Sensitive && (l.spec.Of == nil || !l.spec.Of.Sensitive) {
		return l.text
	}
	return Mask(l.text, len(l.number.Dial))
}

// Mask is the redaction of a sensitive text, as people may see it: enough to tell two
// apart, not enough to know one. head is the length of a country code in front
// of it, which is shown, or 0. Of a phone number of eleven or more digits behind
// its country code it shows the first three and the last four, as people write
// them; of anything else at most half, as much at the end as in front, and at
// most four characters at either end. All that is left out of a text that is
// no phone number is four stars, so that its length stays unknown.
func Mask(s string, head int) string {
	number := s[head:]
	n := utf8.RuneCountInString(number)
	first, last := min(n/4, 4), min(n/4, 4)
	stars := 4
	if head > 0 {
		if n >= 11 {
			first, last = 3, 4
		}
		stars = n - first - last
	}
	runes := []rune(number)
	return s[:head] + string(runes[:first]) + strings.Repeat("*", stars) + string(runes[n-last:])
}
