package key

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/nyaruka/phonenumbers/v2"
)

// Extensions says what becomes of an extension behind a phone number.
type Extensions string

// What can become of an extension.
const (
	// RefuseExtensions refuses a number with an extension: nobody can text it, and
	// some servers drop the extension while others append it to the number.
	RefuseExtensions Extensions = "refuse"
	// KeepExtensions lets it pass. All extensions of one number are one key.
	KeepExtensions Extensions = "keep"
)

// A Phone brings all spellings of a phone number into E.164. It needs no closing. It is
// safe for concurrent use.
type Phone struct {
	region    string
	code      int // the calling code of region
	allow     []LineType
	extend    Extensions
	countries *countries
}

// NewPhone returns a Phone that reads numbers without a country code as they
// are dialled in region, an ISO 3166 code such as CN. If region is empty, all
// numbers need a plus. Numbers of other types than allow are refused; nil
// allows all. Extensions are refused unless they are kept. Errors wrap ErrSpec.
func NewPhone(region string, allow []LineType, extend Extensions) (*Phone, error) {
	if region != "" && !phonenumbers.GetSupportedRegions()[region] {
		return nil, fmt.Errorf("%w: %q is not a region; write two capital letters, for example CN", ErrSpec, region)
	}
	for _, t := range allow {
		if _, err := ParseLineType(string(t)); err != nil {
			return nil, err
		}
	}
	if region == "" {
		region = noRegion
	}
	return &Phone{
		region: region, code: phonenumbers.GetCountryCodeForRegion(region), allow: slices.Clone(allow), extend: extend, countries: &countries{},
	}, nil
}

// Parse reads a number in any spelling that dialled lets through and that is
// valid in the numbering plan of its country. Errors wrap ErrInvalid, or
// ErrAmbiguous where a server could make a number of what is none here: it has
// digits, and something else between them or behind. The Number may share the bytes of s.
// It takes less than a microsecond, and a millisecond when it is the first of its country.
func (p *Phone) Parse(s string) (Number, error) {
	digits, extension, ok := dialled(s)
	switch {
	case !ok && strings.ContainsFunc(s, unicode.IsNumber):
		return Number{}, fmt.Errorf("%w: digits that are not written as a phone number", ErrAmbiguous)
	case !ok:
		return Number{}, fmt.Errorf("%w: not written as a phone number", ErrInvalid)
	case extension && p.extend != KeepExtensions:
		return Number{}, fmt.Errorf("%w: a phone number with an extension; send the number without it", ErrAmbiguous)
	}
	n, valid, sure := p.number(digits)
	if !sure {
		n, valid = p.ask(digits)
	}
	switch {
	case !valid:
		return Number{}, fmt.Errorf("%w: no such phone number", ErrInvalid)
	case len(p.allow) > 0 && !slices.Contains(p.allow, n.Type):
		return Number{}, fmt.Errorf("%w: phone numbers of type %s are not taken", ErrInvalid, n.Type)
	}
	return n, nil
}

// ask has the library read digits in the form of isDialled. It takes some 20
// microseconds.
func (p *Phone) ask(digits string) (n Number, valid bool) {
	read, err := phonenumbers.Parse(digits, p.region)
	if err != nil {
		return Number{}, false
	}
	// A number is valid that has a type: IsValidNumber would find that out by the same
	// patterns once more, which is most of the time that all this takes.
	kind := phonenumbers.GetNumberType(read)
	if kind == phonenumbers.UNKNOWN {
		kind = phonenumbers.GetNumberType(withoutMexicanOne(read))
	}
	if kind == phonenumbers.UNKNOWN {
		return Number{}, false
	}
	return Number{
		E164:    phonenumbers.Format(read, phonenumbers.E164),
		Country: phonenumbers.GetRegionCodeForNumber(read),
		Dial:    "+" + strconv.Itoa(int(read.GetCountryCode())),
		Type:    lineType(kind),
	}, true
}

// withoutMexicanOne drops the 1 that stood before mobile numbers of Mexico until
// 2019 and still stands in many an address book. It changes n.
func withoutMexicanOne(n *phonenumbers.PhoneNumber) *phonenumbers.PhoneNumber {
	const code, one = 52, 1e10 // the 1 before ten digits
	if national := n.GetNationalNumber(); n.GetCountryCode() == code && one <= national && national < 2*one {
		national -= one
		n.NationalNumber = &national
	}
	return n
}
