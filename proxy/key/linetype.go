package key

import (
	"fmt"
	"slices"
	"strings"
)

// A LineType is the type of line of a phone number, according to the numbering plan of its
// country.
type LineType string

// The types.
const (
	Mobile        LineType = "mobile"
	Fixed         LineType = "fixed"
	FixedOrMobile LineType = "fixed_or_mobile" // the plan does not distinguish them, as in North America
	TollFree      LineType = "toll_free"
	Premium       LineType = "premium"
	SharedCost    LineType = "shared_cost"
	VoIP          LineType = "voip"
	Pager         LineType = "pager"
	UAN           LineType = "uan" // a company's number for the whole country
	Voicemail     LineType = "voicemail"
	Personal      LineType = "personal" // follows a person from line to line
)

// lineTypes returns the types that a configuration may name.
func lineTypes() []LineType {
	return []LineType{Mobile, Fixed, FixedOrMobile, TollFree, Premium, SharedCost, VoIP, Pager, UAN, Voicemail, Personal}
}

// ParseLineType parses the name of a type. Errors wrap ErrSpec and list the valid names.
func ParseLineType(s string) (LineType, error) {
	if t := LineType(s); slices.Contains(lineTypes(), t) {
		return t, nil
	}
	names := make([]string, 0, len(lineTypes()))
	for _, t := range lineTypes() {
		names = append(names, string(t))
	}
	return "", fmt.Errorf("%w: %q is not a line type; write one of %s", ErrSpec, s, strings.Join(names, ", "))
}
