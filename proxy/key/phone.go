package key

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/maypok86/otter/v2"
	"github.com/nyaruka/phonenumbers/v2"
)

// phones is how many numbers a Phone remembers: some 250 bytes each.
const phones = 16384

// noRegion is the region that has no numbers.
const noRegion = "ZZ"

// A Number is a valid phone number.
type Number struct {
	E164    string // "+8613800138000"
	Country string // "CN"; "001" for a number that belongs to no country
	Dial    string // "+86"
	Type    LineType
}

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

// A Phone brings all spellings of a phone number into E.164. It remembers the
// numbers asked for last, those that are none as well, and needs no closing. It
// is safe for concurrent use.
type Phone struct {
	region string
	allow  []LineType
	extend Extensions
	known  *otter.Cache[string, verdict]
}

// A verdict is what came of a number.
type verdict struct {
	Number
	valid, allowed bool
}

// NewPhone returns a Phone that reads numbers without a country code as they
// are dialled in region, an ISO 3166 code such as CN. If region is empty, all
// numbers need a plus. Numbers of other types than allow are refused; nil
// allows all. Extensions are refused unless they are kept. Errors wrap ErrSpec.
func NewPhone(region string, allow []LineType, extend Extensions) (*Phone, error) {
	if region != "" && !phonenumbers.GetSupportedRegions()[region] {
		return nil, fmt.Errorf("%w: %q is no region; write two capital letters, for example CN", ErrSpec, region)
	}
	for _, t := range allow {
		if _, err := ParseLineType(string(t)); err != nil {
			return nil, err
		}
	}
	known, err := otter.New(&otter.Options[string, verdict]{MaximumSize: phones})
	if err != nil {
		return nil, fmt.Errorf("make room for phone numbers: %w", err)
	}
	if region == "" {
		region = noRegion
	}
	return &Phone{region: region, allow: slices.Clone(allow), extend: extend, known: known}, nil
}

// Parse reads a number in any spelling that dialled lets through and that is
// valid in the numbering plan of its country. Errors wrap ErrInvalid, or
// ErrAmbiguous where a server could make a number of what is none here: it has
// digits, and something else between them or behind. A number that was seen lately
// costs less than a microsecond, any other some 30.
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
	v, ok := p.known.GetIfPresent(digits)
	if !ok {
		v = p.learn(digits)
		p.known.Set(strings.Clone(digits), v) // a clone, lest it keep a whole body
	}
	switch {
	case !v.valid:
		return Number{}, fmt.Errorf("%w: no such phone number", ErrInvalid)
	case !v.allowed:
		return Number{}, fmt.Errorf("%w: phone numbers of type %s are not taken", ErrInvalid, v.Type)
	}
	return v.Number, nil
}

// learn asks the numbering plans.
func (p *Phone) learn(digits string) verdict {
	n, err := phonenumbers.Parse(digits, p.region)
	if err != nil {
		return verdict{}
	}
	// A number is valid that has a type: IsValidNumber would find that out by the same
	// patterns once more, which is most of the time that all this takes.
	kind := phonenumbers.GetNumberType(n)
	if kind == phonenumbers.UNKNOWN {
		kind = phonenumbers.GetNumberType(withoutMexicanOne(n))
	}
	if kind == phonenumbers.UNKNOWN {
		return verdict{}
	}
	v := verdict{valid: true, Number: Number{
		E164:    phonenumbers.Format(n, phonenumbers.E164),
		Country: phonenumbers.GetRegionCodeForNumber(n),
		Dial:    "+" + strconv.Itoa(int(n.GetCountryCode())),
		Type:    lineType(kind),
	}}
	v.allowed = len(p.allow) == 0 || slices.Contains(p.allow, v.Type)
	return v
}

// withoutMexicanOne drops the 1 that stood before mobile numbers of Mexico until
// 2019 and still stands in many an address book. It changes n.
func withoutMexicanOne(n *phonenumbers.PhoneNumber) *phonenumbers.PhoneNumber {
	const mexico, one = 52, 1e10 // the 1 before ten digits
	if national := n.GetNationalNumber(); n.GetCountryCode() == mexico && one <= national && national < 2*one {
		national -= one
		n.NationalNumber = &national
	}
	return n
}
