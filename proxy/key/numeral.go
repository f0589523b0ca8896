package key

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	maxNumeral = 64 // characters of a number
	maxWhole   = 40 // digits of a whole number that is written out
)

// jsonNumber is a number as JSON writes it.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// AsNumber is the Parts of a request that carries text as a JSON number, where the
// string of the same text has others: the second is the one spelling of that
// number. It is nil if text is no number, or if numbers and strings are one to s or
// s is never read from JSON.
func (s *Spec) AsNumber(text string) []string {
	if s.From.Source != JSON && s.From.Source != JWT || s.Phone != nil || slices.Contains(s.Normalize, Digits) || !jsonNumber.MatchString(text) {
		return nil
	}
	spelled, err := numeralText(text)
	if err != nil {
		return nil
	}
	return []string{tag(s.Name, numeral), spelled}
}

// numeralText is the one spelling of a JSON number: 1, 1.0, 1e0 and 10e-1 are
// one key, and so are 0 and -0. A whole number of at most 40 digits is exact;
// any other is what 64-bit floating point makes of it, because an upstream
// could read it so: 1.00000000000000000001 is 1.
func numeralText(n string) (string, error) {
	if len(n) > maxNumeral {
		return "", fmt.Errorf("%w: a number of more than %d characters", ErrInvalid, maxNumeral)
	}
	if whole, ok := wholeNumber(n); ok {
		return whole, nil
	}
	f, err := strconv.ParseFloat(n, 64)
	if err != nil {
		return "", fmt.Errorf("%w: a number that is too large", ErrInvalid)
	}
	if f == math.Trunc(f) && math.Abs(f) < 1e40 {
		return strconv.FormatFloat(f+0, 'f', -1, 64), nil // + 0 takes the sign off -0
	}
	return strconv.FormatFloat(f, 'g', -1, 64), nil
}

// wholeNumber writes n without fraction and exponent if that loses nothing.
func wholeNumber(n string) (string, bool) {
	sign, digits := "", n
	if n[0] == '-' {
		sign, digits = "-", n[1:]
	}
	exponent := 0
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		e, err := strconv.Atoi(digits[i+1:])
		if err != nil || e > maxWhole || e < -maxNumeral {
			return "", false
		}
		digits, exponent = digits[:i], e
	}
	if i := strings.IndexByte(digits, '.'); i >= 0 {
		exponent -= len(digits) - i - 1
		digits = digits[:i] + digits[i+1:]
	}
	for ; exponent < 0 && strings.HasSuffix(digits, "0"); exponent++ {
		digits = digits[:len(digits)-1]
	}
	digits = strings.TrimLeft(digits, "0")
	switch {
	case digits == "":
		return "0", true
	case exponent < 0 || len(digits)+exponent > maxWhole:
		return "", false
	}
	return sign + digits + strings.Repeat("0", exponent), true
}
