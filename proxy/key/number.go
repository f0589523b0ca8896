package key

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

const (
	// noRegion is the region code without numbers.
	noRegion = "ZZ"
	// nonGeographic is the region of calling codes that do not belong to a country.
	nonGeographic = "001"

	mexico = "+52"
)

// A Number is a valid phone number.
type Number struct {
	E164    string // "+8613800138000"
	Country string // "CN"; "001" for a number that belongs to no country
	Dial    string // "+86"
	Type    LineType
}

// A parsedNumber is the interpretation of dialed digits.
type parsedNumber struct {
	country  *country // nil if no country has such a number
	plan     *plan    // the plan whose national prefix may precede the number
	national string
}

// number is the number that is dialed by digits, in the form of isDialedForm; valid is false
// if there is none. The rules are those of the library that plans.txt is from, whose Parse
// and GetNumberType take a hundred times as long: TestPhone_AgreesWithTheLibrary compares.
func (p *Phone) number(digits string) (n Number, valid bool) {
	r := p.read(digits)
	if r.country == nil || len(r.national) < minNational {
		return Number{}, false
	}
	if r.plan == nil {
		r.plan = r.country.plans[0]
	}
	national := r.plan.withoutPrefix(r.national)
	if len(national) < minNational || len(national) > maxNational {
		return Number{}, false
	}
	of, kind := r.country.find(national)
	if kind == "" && r.country.dial == mexico && len(national) == 11 && national[0] == '1' && national[1] != '0' {
		national = national[1:]
		of, kind = r.country.find(national)
	}
	if kind == "" {
		return Number{}, false
	}
	return Number{E164: e164(digits, r.country.dial, national), Country: of.region, Dial: r.country.dial,
		Type: kind}, true
}

// e164 returns a number in E.164: digits itself, if it already has this form.
func e164(digits, dial, national string) string {
	if len(digits) == len(dial)+len(national) && strings.HasPrefix(digits, dial) &&
		strings.HasSuffix(digits, national) {
		return digits
	}
	return dial + national
}

// read splits digits into calling code and number.
func (p *Phone) read(digits string) parsedNumber {
	digits, plus := strings.CutPrefix(digits, "+")
	switch {
	case len(digits) < minNational, plus && len(digits) == minNational:
		return parsedNumber{}
	case plus:
		if c, national := p.countries.split(digits); c != nil {
			return parsedNumber{country: c, national: national}
		}
	}
	if p.region == noRegion {
		return parsedNumber{}
	}
	here := p.countries.forCode(p.code)
	home := here.plans[slices.IndexFunc(here.plans, func(of *plan) bool { return of.region == p.region })]
	if rest, found := home.abroad.trim(digits); found && !strings.HasPrefix(rest, "0") {
		if len(rest) <= minNational {
			return parsedNumber{}
		}
		c, national := p.countries.split(rest)
		return parsedNumber{country: c, national: national}
	}
	if rest, found := strings.CutPrefix(digits, here.dial[1:]); found {
		rest = home.cutPrefix(rest)
		if !home.matches(digits) && home.matches(rest) || home.tooLong(len(digits)) {
			return parsedNumber{country: here, national: rest}
		}
	}
	if plus {
		return parsedNumber{}
	}
	return parsedNumber{country: here, plan: home, national: digits}
}

const (
	maxNumeral = 64 // characters of a number
	maxWhole   = 40 // digits of an integer
)

// maxExact is the largest integer that 64-bit floating point, as in JavaScript, represents
// exactly and distinguishes from the next one.
const maxExact = 1<<53 - 1

// canonicalJSON returns the text of a JSON value for a key. The number 42 and the string
// "42" are the same key, because most programs treat them as the same phone number or user.
// Other numbers and booleans have different texts in each language; they are ErrAmbiguous: a
// fraction, an exponent and a negative zero, which Python, Ruby, Java and JavaScript format differently.
func canonicalJSON(f result, err error) (result, error) {
	switch {
	case err != nil:
		return result{}, err
	case f.kind == kindBool:
		return result{}, fmt.Errorf("%w: a JSON boolean; send a string", ErrAmbiguous)
	case f.kind != kindNumber:
		return f, nil
	}
	n, err := strconv.ParseInt(f.text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != f.text || n > maxExact || n < -maxExact {
		return result{}, fmt.Errorf("%w: a JSON number that is not a plain integer, or beyond %d; send a string",
			ErrAmbiguous, int64(maxExact))
	}
	f.kind = kindString
	return f, nil
}

// numeralText returns the canonical text of a number in a token, whose spelling the client
// does not choose: 1, 1.0, 1e0, 10e-1 and "1" are the same key, and so are 0 and -0. Integers of
// at most 40 digits are exact; all other numbers are rounded to 64-bit floating point,
// because an upstream could do so: 1.00000000000000000001 is 1.
func numeralText(n string) (string, error) {
	if len(n) > maxNumeral {
		return "", fmt.Errorf("%w: a number of more than %d characters", ErrInvalid, maxNumeral)
	}
	f, err := strconv.ParseFloat(n, 64)
	if err != nil {
		return "", fmt.Errorf("%w: a number that is too large", ErrInvalid)
	}
	if f == 0 {
		return "0", nil // also of -0
	}
	if math.Abs(f) <= 1e40 { // so that its exponent is small
		if exact, ok := new(big.Rat).SetString(n); ok && exact.IsInt() {
			if whole := exact.Num().String(); len(strings.TrimPrefix(whole, "-")) <= maxWhole {
				return whole, nil
			}
		}
	}
	if f == math.Trunc(f) && math.Abs(f) < 1e40 {
		return strconv.FormatFloat(f, 'f', -1, 64), nil
	}
	return strconv.FormatFloat(f, 'g', -1, 64), nil
}
