package key

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// checkAmbiguous returns an error unless all servers read the text of a key at o in the
// same way. Characters that the steps of s remove are allowed.
func (s *Spec) checkAmbiguous(o Origin, f *result) error {
	if !o.Source.IsSpelled() {
		return nil
	}
	sent := f.text
	switch {
	case f.lineBreak && !slices.ContainsFunc(s.Normalize, Step.dropsLineBreak):
		return fmt.Errorf("%w: the form ends with a line break, which most servers read as part of it", ErrAmbiguous)
	case f.kind != kindString || isPlainText(sent):
		return nil
	}
	switch {
	case strings.IndexByte(sent, 0) >= 0:
		return fmt.Errorf("%w: a NUL, at which some servers truncate it", ErrAmbiguous)
	case !utf8.ValidString(sent):
		return fmt.Errorf("%w: it is not UTF-8", ErrAmbiguous)
	case table[o.Source].isLatin && latinDigits(sent):
		return fmt.Errorf("%w: bytes that are digits in Latin-1", ErrAmbiguous)
	}
	if slices.Contains(s.Normalize, Digits) || slices.Contains(s.Normalize, E164) {
		return nil // these steps refuse what they do not remove
	}
	if o.Source.IsField() && strings.ContainsFunc(sent, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return fmt.Errorf("%w: bytes beyond ASCII in a header field", ErrAmbiguous)
	}
	if slices.Contains(s.Normalize, Trim) {
		sent = strings.TrimSpace(sent)
	}
	switch {
	case strings.ContainsFunc(sent, unicode.IsControl):
		return fmt.Errorf("%w: a control character", ErrAmbiguous)
	case sent != strings.TrimFunc(sent, blank):
		return fmt.Errorf("%w: surrounding whitespace, which some servers drop", ErrAmbiguous)
	}
	return nil
}

// isPlainText reports the common case: visible ASCII, with whitespace inside.
func isPlainText(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' '
}

// blank reports whether some servers drop r at the ends of a text.
func blank(r rune) bool { return unicode.IsSpace(r) || isInvisible(r) }

// latinDigits reports whether s contains a number beyond ASCII when it is read as Latin-1,
// like header fields by WSGI and Node, and header and form fields by Tomcat: the
// superscript two in the bytes of a Cyrillic letter, for example.
func latinDigits(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf && unicode.IsNumber(rune(s[i])) {
			return true
		}
	}
	return false
}

// checkDigits returns an error if s has a digit or number beyond ASCII. Java, JavaScript,
// Go and PHP drop it because it is not one of 0-9, Python reads decimal ones as digits, and
// phone number libraries do both.
func checkDigits(s string) error {
	for _, r := range s {
		if r >= utf8.RuneSelf && unicode.IsNumber(r) {
			return fmt.Errorf("%w: digits other than 0-9", ErrAmbiguous)
		}
	}
	return nil
}
