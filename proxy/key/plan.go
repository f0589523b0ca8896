package key

import (
	_ "embed"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

const (
	minNational = 2 // digits of a number without the code of its country
	maxNational = 17
)

// A plan is the numbering plan of a region, compiled for digits.
type plan struct {
	region   string
	national *affix
	abroad   *affix
	numbers  *automaton
	lengths  [maxNational + 1]uint16 // of which kinds there are numbers of so many digits
	possible []int                   // lengths of all numbers, ascending
	local    []int                   // lengths that do inside an area alone
	leading  bool                    // the region is told by how its numbers begin
	same     bool                    // fixed and mobile lines are not told apart
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

// planWords begin the lines of plans.txt that have the expressions of the kinds, in the order
// of their bits. Those of specialTypes are the names of the types.
func planWords() []string {
	words := []string{"general", "fixed", "mobile", "leading"}
	for _, t := range specialTypes() {
		words = append(words, string(t))
	}
	return words
}

// newPlan compiles a plan of plans.txt. It takes about a millisecond.
func newPlan(region string, lines map[string]string) *plan {
	p := &plan{region: region, local: readLengths(lines["local"])}
	_, p.same = lines["same"]
	_, p.leading = lines["leading"]
	var expressions []string
	for i, word := range planWords() {
		list, expression, _ := strings.Cut(lines[word], " ")
		if word == "leading" && p.leading {
			list, expression = "", "(?:"+lines[word]+")[0-9]*"
		}
		lengths := readLengths(list)
		if i == 0 {
			p.possible = lengths
		}
		expressions = append(expressions, expression)
		for n := range p.lengths {
			if len(lengths) == 0 || slices.Contains(lengths, n) {
				p.lengths[n] |= 1 << i
			}
		}
	}
	p.numbers = newAutomaton(expressions...)
	p.national, p.abroad = newAffix(lines["national"], lines["transform"]), newAffix(lines["abroad"], "")
	return p
}

// readLengths reads numbers with commas between them.
func readLengths(list string) (lengths []int) {
	for text := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
		n, _ := strconv.Atoi(text) // plans.txt is compared with the library by a test
		lengths = append(lengths, n)
	}
	return lengths
}

// lineType is the type of a national number, "" if the plan has no such number.
func (p *plan) lineType(national string) LineType {
	kinds := p.numbers.match(national) & p.lengths[len(national)]
	if kinds&kindGeneral == 0 {
		return ""
	}
	if special := kinds / kindSpecial; special != 0 {
		return specialTypes()[bits.TrailingZeros16(special)]
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

// withoutPrefix removes the national prefix from a number. It does not if the rest would
// not be a number, or would not have a valid length.
func (p *plan) withoutPrefix(national string) string {
	rest := p.cutPrefix(national)
	if n := len(rest); p.hasLength(n) || p.tooLong(n) {
		return rest
	}
	return national
}

func (p *plan) cutPrefix(national string) string {
	rest, found := p.national.trim(national)
	if found && p.matches(national) && !p.matches(rest) {
		return national
	}
	return rest
}

// hasLength reports whether the plan has numbers with this many digits that can be called from
// everywhere.
func (p *plan) hasLength(digits int) bool {
	return slices.Contains(p.possible, digits) && !slices.Contains(p.local, digits)
}

func (p *plan) tooLong(digits int) bool {
	return digits > p.possible[len(p.possible)-1] && !slices.Contains(p.local, digits)
}

//go:generate go test -run TestPlans_AreThoseOfTheLibrary -update .

// plans are the numbering plans of the world: what github.com/nyaruka/phonenumbers, which
// is Google's libphonenumber in Go, has of them that tells numbers apart. A text of them is
// read where it is needed and otherwise costs no memory, where the library unpacks some
// three megabytes when a program starts, whether or not it reads phone numbers.
//
// Its lines are the regions of each calling code, the one that speaks for it first; a
// blank line; and then of each of these a plan:
//
//	plan +64 NZ
//	general 8,9,10,5,6,7 [1289]\d{9}|50\d{5}(?:\d{2,3})?|...
//	mobile 8,9,10 2(?:[0-27-9]\d|6)\d{6,7}|2(?:1\d|75)\d{5}
//	abroad 0(?:0|161)
//
//go:embed plans.txt
var plans string

// regionsOf are the regions of a calling code such as +86; none if there is no such code.
func regionsOf(dial string) []string {
	codes, _, _ := strings.Cut(plans, "\n\n")
	_, rest, _ := strings.Cut(codes, "\n"+dial+" ")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Fields(line)
}

// maxCallingCode is the number of digits of the longest calling code.
const maxCallingCode = 3

// codeLength is how many digits of an international number are its calling code; 0 if there is no such code.
func codeLength(digits string) int {
	for n := range min(len(digits), maxCallingCode) {
		if len(regionsOf("+"+digits[:n+1])) > 0 {
			return n + 1
		}
	}
	return 0
}

// codeOf is the calling code of a region, 0 if there is no such region.
func codeOf(region string) int {
	codes, _, _ := strings.Cut(plans, "\n\n")
	for line := range strings.Lines(codes) {
		code, regions, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if region != nonGeographic && slices.Contains(strings.Fields(regions), region) {
			n, _ := strconv.Atoi(code) // plans.txt is compared with the library by a test
			return n
		}
	}
	return 0
}

// planLines are the lines of a plan, by their first words.
func planLines(dial, region string) map[string]string {
	_, rest, _ := strings.Cut(plans, "\nplan "+dial+" "+region+"\n")
	text, _, _ := strings.Cut(rest, "\nplan ")
	lines := map[string]string{}
	for line := range strings.Lines(text) {
		word, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		lines[word] = value
	}
	return lines
}
