package key

import (
	"errors"
	"slices"

	"github.com/nyaruka/phonenumbers/v2/metadata"
)

const (
	minNational = 2 // digits of a number without the code of its country
	maxNational = 17
)

// A plan is the numbering plan of a region in the library, compiled for digits.
type plan struct {
	region   string
	national *affix
	abroad   *affix
	numbers  *automaton
	lengths  [maxNational + 1]uint16 // kinds of numbers, by number of digits
	possible []int32                 // lengths of all numbers, ascending
	local    []int32                 // lengths that are valid only within an area
	leading  bool                    // the region is identified by the leading digits of its numbers
	same     bool                    // fixed and mobile lines are not distinguished
}

// The kinds of numbers that the expressions of a plan distinguish, one bit each.
const (
	kindGeneral = 1 << iota // any number
	kindFixed
	kindMobile
	kindLeading // has the leading digits of the region
	kindSpecial // types of specialTypes, one bit each from here on
)

// specialTypes returns the types that take precedence over fixed and mobile, in order of
// precedence.
func specialTypes() []LineType {
	return []LineType{Premium, TollFree, SharedCost, VoIP, Personal, Pager, UAN, Voicemail}
}

// newPlan compiles a plan. It takes about a millisecond.
func newPlan(m *metadata.PhoneMetadata) (*plan, error) {
	p := &plan{
		region: m.GetId(), leading: m.GetLeadingDigits() != "", same: m.GetSameMobileAndFixedLinePattern(),
		possible: m.GetGeneralDesc().GetPossibleLength(), local: m.GetGeneralDesc().GetPossibleLengthLocalOnly(),
	}
	var expressions []string
	for i, d := range []*metadata.PhoneNumberDesc{
		m.GetGeneralDesc(), m.GetFixedLine(), m.GetMobile(), nil,
		m.GetPremiumRate(), m.GetTollFree(), m.GetSharedCost(), m.GetVoip(), m.GetPersonalNumber(), m.GetPager(), m.GetUan(), m.GetVoicemail(),
	} {
		expressions = append(expressions, d.GetNationalNumberPattern())
		for n := range p.lengths {
			if len(d.GetPossibleLength()) == 0 || d.HasPossibleLength(int32(n)) {
				p.lengths[n] |= 1 << i
			}
		}
	}
	if p.leading {
		expressions[3] = "(?:" + m.GetLeadingDigits() + ")[0-9]*" // at kindLeading
	}
	var err error
	if p.numbers, err = newAutomaton(expressions...); err != nil {
		return nil, err
	}
	if p.numbers.loose || len(p.possible) == 0 {
		return nil, errors.New("numbers that digits alone do not tell")
	}
	if p.national, err = newAffix(m.GetNationalPrefixForParsing(), m.GetNationalPrefixTransformRule()); err != nil {
		return nil, err
	}
	p.abroad, err = newAffix(m.GetInternationalPrefix(), "")
	return p, err
}

// lineType returns the type of a national number, "" if the plan has no such number.
func (p *plan) lineType(national string) LineType {
	kinds := p.numbers.match(national) & p.lengths[len(national)]
	if kinds&kindGeneral == 0 {
		return ""
	}
	if special := kinds / kindSpecial; special != 0 {
		for _, t := range specialTypes() {
			if special&1 != 0 {
				return t
			}
			special >>= 1
		}
	}
	switch fixed, mobile := kinds&kindFixed != 0, kinds&kindMobile != 0; {
	case fixed && (p.same || mobile):
		return FixedOrMobile
	case fixed:
		return Fixed
	case mobile && !p.same:
		return Mobile
	}
	return ""
}

// matches reports whether the plan has numbers of this form; for some forms not all lengths
// are in use.
func (p *plan) matches(national string) bool { return p.numbers.match(national)&kindGeneral != 0 }

// begins reports whether national has the leading digits of the region, which no other
// region with the same calling code has.
func (p *plan) begins(national string) bool { return p.numbers.match(national)&kindLeading != 0 }

// withoutPrefix removes the national prefix from a number. It does not if the rest would
// not be a number, or would not have a valid length.
func (p *plan) withoutPrefix(national string) string {
	rest := p.cutPrefix(national)
	if n := len(rest); p.fits(n) || p.tooLong(n) {
		return rest
	}
	return national
}

func (p *plan) cutPrefix(national string) string {
	rest, found := p.national.cut(national)
	if found && p.matches(national) && !p.matches(rest) {
		return national
	}
	return rest
}

// fits reports whether the plan has numbers with this many digits that can be called from
// everywhere.
func (p *plan) fits(digits int) bool {
	return slices.Contains(p.possible, int32(digits)) && !slices.Contains(p.local, int32(digits))
}

func (p *plan) tooLong(digits int) bool {
	return int32(digits) > p.possible[len(p.possible)-1] && !slices.Contains(p.local, int32(digits))
}
