package key

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	maxNumeral = 64 // characters of a number
	maxWhole   = 40 // digits of a whole number that is written out
)

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
