package key

import (
	"strings"
	"unicode/utf8"
)

// shown returns the text of c for display.
func (c component) shown() string {
	if c.spec.Of != nil && c.spec.Part.Kind != Prefix { // a country identifies nobody
		return c.text
	}
	if !c.spec.Sensitive && (c.spec.Of == nil || !c.spec.Of.Sensitive) {
		return c.text
	}
	return Mask(c.text, len(c.number.Dial))
}

// Mask returns a sensitive text for display (redaction): enough to distinguish texts, not
// enough to identify one. head is the length of a leading country code, which is shown, or
// 0. Of a phone number with eleven or more digits after its country code, it shows the
// first three and the last four digits; of any other text at most half, evenly from both
// ends, and at most four characters at each end. In texts that are not phone numbers, the
// hidden part is always four stars, which hides its length.
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
