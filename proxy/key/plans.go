package key

import (
	_ "embed"
	"strconv"
	"strings"
)

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

// regionsOf are the regions of a calling code; none if there is no such code.
func regionsOf(code int) []string {
	codes, _, _ := strings.Cut(plans, "\n\n")
	_, rest, found := strings.Cut(codes, "\n+"+strconv.Itoa(code)+" ")
	if !found {
		return nil
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Fields(line)
}

// codeOf is the calling code of a region, 0 if there is no such region.
func codeOf(region string) int {
	codes, _, _ := strings.Cut(plans, "\n\n")
	for line := range strings.Lines(codes) {
		code, regions, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		for r := range strings.SplitSeq(regions, " ") {
			if r == region && region != nonGeographic {
				n, _ := strconv.Atoi(code) // plans.txt is compared with the library by a test
				return n
			}
		}
	}
	return 0
}

// planLines are the lines of a plan, by their first words.
func planLines(code int, region string) map[string]string {
	_, rest, _ := strings.Cut(plans, "\nplan +"+strconv.Itoa(code)+" "+region+"\n")
	text, _, _ := strings.Cut(rest, "\nplan ")
	lines := map[string]string{}
	for line := range strings.Lines(text) {
		word, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		lines[word] = value
	}
	return lines
}
