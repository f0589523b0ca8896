package key

import "strings"

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
		r.plan = r.country.main()
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
	return Number{E164: e164(digits, r.country.dial, national), Country: of.region, Dial: r.country.dial, Type: kind}, true
}

// e164 returns a number in E.164: digits itself, if it already has this form.
func e164(digits, dial, national string) string {
	if len(digits) == len(dial)+len(national) && strings.HasPrefix(digits, dial) && strings.HasSuffix(digits, national) {
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
	home := here.plan(p.region)
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
