package key

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

const (
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

// Extensions is the handling of an extension after a phone number.
type Extensions string

// What can become of an extension.
const (
	// RefuseExtensions refuses a number with an extension: it cannot receive SMS, and some
	// servers drop the extension while others append its digits to the number.
	RefuseExtensions Extensions = "refuse"
	// KeepExtensions accepts it. All extensions of a number are the same key.
	KeepExtensions Extensions = "keep"
)

// A Phone normalizes phone numbers to E.164. It is safe for concurrent use, and needs no
// Close.
type Phone struct {
	region    string
	code      int // the calling code of region
	allow     []LineType
	extend    Extensions
	countries *countries
}

// NewPhone returns a Phone. Numbers without a country code are parsed as dialed in region,
// an ISO 3166 code such as CN; if region is empty, all numbers need a plus. Only the line
// types in allow are accepted; nil accepts all. The error wraps ErrSpec.
func NewPhone(region string, allow []LineType, extend Extensions) (*Phone, error) {
	code := codeOf(region)
	if region != "" && code == 0 {
		instead := cmp.Or(map[string]string{"UK": "GB"}[region], "the two capital letters of a country, for example CN")
		return nil, fmt.Errorf("%w: %q is not a region; write %s", ErrSpec, region, instead)
	}
	return &Phone{region: region, code: code, allow: slices.Clone(allow), extend: extend, countries: &countries{}}, nil
}

// HasRegion reports whether numbers without a country code are parsed as dialed in a region.
func (p *Phone) HasRegion() bool { return p.region != "" }

// Parse parses a number in any spelling that dialedDigits accepts and that is valid in the
// numbering plan of its country. Errors wrap ErrInvalid, or ErrAmbiguous if a server could
// read a number from a text that is not one here, because it contains digits. Number may
// share memory with s. Parse takes less than a microsecond, and about a millisecond for the
// first number of a country.
func (p *Phone) Parse(s string) (Number, error) {
	digits, extension, ok := dialedDigits(s)
	switch {
	case !ok && strings.ContainsFunc(s, unicode.IsNumber):
		return Number{}, fmt.Errorf("%w: digits that are not written as a phone number", ErrAmbiguous)
	case !ok:
		return Number{}, fmt.Errorf("%w: not written as a phone number", ErrInvalid)
	case extension && p.extend != KeepExtensions:
		return Number{}, fmt.Errorf("%w: a phone number with an extension; send the number without it", ErrAmbiguous)
	}
	n, valid := p.number(digits)
	switch {
	case !valid:
		return Number{}, fmt.Errorf("%w: not a valid phone number", ErrInvalid)
	case len(p.allow) > 0 && !slices.Contains(p.allow, n.Type):
		return Number{}, fmt.Errorf("%w: phone numbers of type %s are not accepted", ErrInvalid, n.Type)
	}
	return n, nil
}

// number is the number that is dialed by digits, in the form of isDialedForm; valid is false
// if there is none. The rules are those of the library that plans.txt is from, whose Parse
// and GetNumberType take a hundred times as long: TestPhone_AgreesWithTheLibrary compares.
func (p *Phone) number(digits string) (n Number, valid bool) {
	c, home, national := p.read(digits)
	if c == nil || len(national) < minNational {
		return Number{}, false
	}
	national = cmp.Or(home, c.plans[0]).withoutPrefix(national)
	if len(national) < minNational || len(national) > maxNational {
		return Number{}, false
	}
	of, kind := c.find(national)
	if kind == "" && c.dial == mexico && len(national) == 11 && national[0] == '1' && national[1] != '0' {
		national = national[1:]
		of, kind = c.find(national)
	}
	if kind == "" {
		return Number{}, false
	}
	return Number{E164: e164(digits, c.dial, national), Country: of.region, Dial: c.dial, Type: kind}, true
}

// e164 returns a number in E.164: digits itself, if it already has this form.
func e164(digits, dial, national string) string {
	if len(digits) == len(dial)+len(national) && strings.HasPrefix(digits, dial) &&
		strings.HasSuffix(digits, national) {
		return digits
	}
	return dial + national
}

// read splits digits into the country of their calling code and the number. The country is nil if none has such a
// number, and home the plan whose national prefix may precede the number, nil for that which speaks for the code.
func (p *Phone) read(digits string) (c *country, home *plan, national string) {
	digits, plus := strings.CutPrefix(digits, "+")
	switch {
	case len(digits) < minNational, plus && len(digits) == minNational:
		return nil, nil, ""
	case plus:
		if c, national = p.countries.split(digits); c != nil {
			return c, nil, national
		}
	}
	if !p.HasRegion() {
		return nil, nil, ""
	}
	here := p.countries.forCode(p.code)
	home = here.plans[slices.IndexFunc(here.plans, func(of *plan) bool { return of.region == p.region })]
	if rest, found := home.abroad.trim(digits); found && !strings.HasPrefix(rest, "0") {
		if len(rest) <= minNational {
			return nil, nil, ""
		}
		c, national = p.countries.split(rest)
		return c, nil, national
	}
	if rest, found := strings.CutPrefix(digits, here.dial[1:]); found {
		rest = home.cutPrefix(rest)
		if !home.matches(digits) && home.matches(rest) || home.tooLong(len(digits)) {
			return here, nil, rest
		}
	}
	if plus {
		return nil, nil, ""
	}
	return here, home, digits
}

const (
	maxSpelling  = 160 // bytes of a phone number as written
	maxDialed    = 24  // digits, with international prefixes
	maxExtension = 9   // digits
)

// dialedDigits returns the characters that would be dialed for a phone number: a plus, if it
// begins with one, and ASCII digits. It accepts whitespace, dashes, dots, slashes and
// parentheses, also full-width ones. It drops "tel:" before the number, an extension after
// it (";ext=5", "ext. 5", "x5"), and invisible characters from copied text; extension
// reports whether there was an extension. Everything else is not a phone number: digits
// beyond ASCII, letters as in 1-800-FLOWERS, other text before or after the number, a
// second plus, line breaks, other parameters of a URI. A result of dialedDigits is returned
// unchanged when it is passed in again, without allocating.
func dialedDigits(s string) (digits string, extension, ok bool) {
	if isDialedForm(s) {
		return s, false, true
	}
	if len(s) > maxSpelling {
		return "", false, false
	}
	var buffer [maxSpelling]byte
	spelling, ok := appendASCII(buffer[:0], s)
	if !ok {
		return "", false, false
	}
	text := bytes.TrimPrefix(bytes.Trim(spelling, " "), []byte("tel:"))
	if i := slices.IndexFunc(text, func(c byte) bool { return isLetter(c) || c == ';' || c == ':' || c == '=' }); i >= 0 {
		if !isExtension(string(text[i:])) {
			return "", false, false
		}
		text, extension = text[:i], true
	}
	if len(text) == 0 || text[0] != '+' && text[0] != '(' && !isDigit(text[0]) {
		return "", false, false // -138 is a negative number
	}
	dialed := text[:0]
	for _, c := range text {
		if isDigit(c) || strings.IndexByte(" -./()", c) < 0 {
			dialed = append(dialed, c)
		}
	}
	digits = string(dialed)
	return digits, extension, isDialedForm(digits)
}

// isDialedForm reports whether s consists of an optional plus, and digits.
func isDialedForm(s string) bool {
	digits := strings.TrimPrefix(s, "+")
	return digits != "" && len(digits) <= maxDialed && strings.Trim(digits, "0123456789") == ""
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// appendASCII appends s to b in ASCII: letters in lower case, whitespace as a space, dashes as
// a hyphen. It reports whether all of s has such a form.
func appendASCII(b []byte, s string) ([]byte, bool) {
	for _, r := range s {
		if '\uFF01' <= r && r <= '\uFF5E' && !unicode.IsDigit(r) {
			r -= '\uFF01' - '!' // full-width
		}
		switch {
		case '0' <= r && r <= '9', 'a' <= r && r <= 'z', r < utf8.RuneSelf && strings.IndexByte("+-./();:=", byte(r)) >= 0:
			b = append(b, byte(r))
		case 'A' <= r && r <= 'Z':
			b = append(b, byte(r)+'a'-'A')
		case r == ' ', r == '\t', unicode.Is(unicode.Zs, r):
			b = append(b, ' ')
		case '\u2010' <= r && r <= '\u2015', r == '\u2212', r == '\u30FC', r == '\uFE63':
			b = append(b, '-')
		case !isInvisible(r):
			return nil, false
		}
	}
	return b, true
}

// isInvisible reports whether r is a character without width, such as a joiner or a mark of
// text direction.
func isInvisible(r rune) bool {
	return r == '\u00AD' || r == '\u061C' || r == '\uFEFF' ||
		'\u200B' <= r && r <= '\u200F' || '\u202A' <= r && r <= '\u202E' || '\u2060' <= r && r <= '\u2069'
}

// isExtension reports whether s, in the form of appendASCII, is an extension and nothing else.
func isExtension(s string) bool {
	mark := strings.TrimRight(s, "0123456789")
	if digits := len(s) - len(mark); digits == 0 || digits > maxExtension {
		return false
	}
	return mark == ";ext=" || slices.Contains([]string{"extension", "ext", "x"}, strings.TrimRight(mark, " .:"))
}

// callingCodes is the number of calling codes, which have at most three digits.
const callingCodes = 1000

// countries holds the numbering plans by calling code. A plan is compiled when the first
// number with its code is parsed, which takes about a millisecond; all plans together take
// less than a megabyte. The zero value is ready for use, also concurrently.
type countries [callingCodes]atomic.Pointer[country]

// A country holds the plans of one calling code: of one or several countries, or of a
// service.
type country struct {
	dial  string  // "+86"
	plans []*plan // the one that speaks for the code stands first; none if there is no such code
}

// forCode returns the country for a calling code.
func (all *countries) forCode(code int) *country {
	c := all[code].Load()
	if c == nil {
		c = newCountry(code)
		all[code].Store(c) // concurrent calls store equal values
	}
	return c
}

func newCountry(code int) *country {
	c := &country{dial: "+" + strconv.Itoa(code)}
	for _, region := range regionsOf(c.dial) {
		c.plans = append(c.plans, newPlan(region, planLines(c.dial, region)))
	}
	return c
}

// split splits the calling code off digits. The country is nil if they do not begin with
// one.
func (all *countries) split(digits string) (c *country, national string) {
	code := 0
	for i := 0; i < min(len(digits), maxCallingCode); i++ {
		code = code*10 + int(digits[i]-'0')
		if code == 0 {
			return nil, digits // no code begins with 0
		}
		if c := all.forCode(code); len(c.plans) > 0 {
			return c, digits[i+1:]
		}
	}
	return nil, digits
}

// find returns the plan and the type of a national number, "" if no plan has it.
func (c *country) find(national string) (*plan, LineType) {
	for _, p := range c.plans {
		if p.leading {
			if p.numbers.match(national)&kindLeading != 0 { // the leading digits that no other region with the same calling code has
				return p, p.lineType(national)
			}
			continue
		}
		if t := p.lineType(national); t != "" {
			return p, t
		}
	}
	return nil, ""
}

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
	return []LineType{Mobile, Fixed, FixedOrMobile, TollFree, Premium, SharedCost, VoIP, Pager, UAN,
		Voicemail, Personal}
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

// A PartKind is the kind of a part of a phone number.
type PartKind string

// The parts.
const (
	Country  PartKind = "country"   // the ISO 3166 code, "CN"
	DialCode PartKind = "dial_code" // "+86"
	Prefix   PartKind = "prefix"    // the number without its last digits, "+861380013"
)

// A Part is the part of a phone number that a key uses.
type Part struct {
	Kind PartKind
	Drop int // digits that Prefix omits, 1 to 10
}

// NewPart returns a Part; drop is used only for Prefix, and must be 0 for the others. Errors
// wrap ErrSpec and contain what to write.
func NewPart(kind PartKind, drop int) (Part, error) {
	p := Part{Kind: kind, Drop: drop}
	switch isPrefix := kind == Prefix; {
	case !isPrefix && drop != 0:
		return Part{}, fmt.Errorf("%w: a %s has no drop_last; leave it out, or write part: %s", ErrSpec, kind, Prefix)
	case isPrefix && (drop < 1 || drop > 10):
		return Part{}, fmt.Errorf("%w: a prefix that drops %d digits; write drop_last with 1 to 10, for example 4",
			ErrSpec, drop)
	}
	return p, nil
}

// of returns the part of n. A prefix keeps at least the country code.
func (p Part) of(n Number) string {
	switch p.Kind {
	case Country:
		return n.Country
	case DialCode:
		return n.Dial
	}
	return n.E164[:max(len(n.Dial), len(n.E164)-p.Drop)]
}

// text validates a value of p in a list, and returns it in the form of of.
func (p Part) text(s string) (string, error) {
	if p.Kind == Country {
		return country3166(s)
	}
	dialed, extension, ok := dialedDigits(s)
	digits := strings.TrimPrefix(dialed, "+")
	if !ok || extension || hasTrunkPrefix(s) {
		return "", fmt.Errorf("%w: no %s; write a plus and digits", ErrSpec, p.Kind)
	}
	if n := codeLength(digits); n == 0 || n < len(digits) && p.Kind != Prefix {
		return "", fmt.Errorf("%w: no numbers have such a %s; write for example +86", ErrSpec, p.Kind)
	}
	return "+" + digits, nil
}

// country3166 returns s if it is a country of ISO 3166, or 001 for services of no country.
func country3166(s string) (string, error) {
	const unnumbered = "AQ BV GS HM PN TF UM" // have no calling code of their own
	known := func(s string) bool {
		return codeOf(s) != 0 || len(s) == 2 && slices.Contains(strings.Fields(unnumbered), s)
	}
	upper := strings.ToUpper(s)
	meant := cmp.Or(map[string]string{"UK": "GB", "EN": "GB", "EL": "GR"}[upper], upper)
	switch {
	case known(s) || s == nonGeographic:
		return s, nil
	case known(meant):
		return "", fmt.Errorf("%w: not a country of ISO 3166; write %s", ErrSpec, meant)
	}
	return "", fmt.Errorf("%w: not a country; write two capital letters of ISO 3166, for example CN", ErrSpec)
}
