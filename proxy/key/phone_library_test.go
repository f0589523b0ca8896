package key

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/nyaruka/phonenumbers/v2"
	"github.com/nyaruka/phonenumbers/v2/metadata"

	"github.com/weir-proxy/weir/test/rounds"
)

// agrees fails the test unless p makes of dialed digits what the library does, by its own
// means. It reports whether they are a number.
func agrees(t testing.TB, p *Phone, digits string) bool {
	t.Helper()
	got, valid := p.number(digits)
	want, is := askLibrary(p, digits)
	if got != want || valid != is {
		t.Errorf("in %s, %s is %+v, %v; to the library it is %+v, %v", p.region, digits, got, valid, want, is)
	}
	return is
}

// askLibrary has the library read digits in the form of isDialedForm. It takes some 30
// microseconds.
func askLibrary(p *Phone, digits string) (n Number, valid bool) {
	read, err := phonenumbers.Parse(digits, p.region)
	if err != nil || !phonenumbers.IsValidNumber(read) && !phonenumbers.IsValidNumber(withoutMexicanOne(read)) {
		return Number{}, false
	}
	return Number{
		E164:    phonenumbers.Format(read, phonenumbers.E164),
		Country: phonenumbers.GetRegionCodeForNumber(read),
		Dial:    "+" + strconv.Itoa(int(read.GetCountryCode())),
		Type:    lineType(phonenumbers.GetNumberType(read)),
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

func lineType(t phonenumbers.PhoneNumberType) LineType {
	switch t {
	case phonenumbers.MOBILE:
		return Mobile
	case phonenumbers.FIXED_LINE:
		return Fixed
	case phonenumbers.FIXED_LINE_OR_MOBILE:
		return FixedOrMobile
	case phonenumbers.TOLL_FREE:
		return TollFree
	case phonenumbers.PREMIUM_RATE:
		return Premium
	case phonenumbers.SHARED_COST:
		return SharedCost
	case phonenumbers.VOIP:
		return VoIP
	case phonenumbers.PAGER:
		return Pager
	case phonenumbers.UAN:
		return UAN
	case phonenumbers.VOICEMAIL:
		return Voicemail
	case phonenumbers.PERSONAL_NUMBER:
		return Personal
	}
	return "" // of a type that no plan has
}

// examples are numbers of each type of a region, without the calling code.
func examples(region string) []string {
	var all []string
	for kind := phonenumbers.FIXED_LINE; kind <= phonenumbers.VOICEMAIL; kind++ {
		if n := phonenumbers.GetExampleNumberForTypeInRegion(region, kind); n != nil {
			all = append(all, phonenumbers.GetNationalSignificantNumber(n))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// abroad is what is dialed in regions before the code of another country, among others.
func abroad() []string {
	return []string{"00", "011", "001", "010", "0011", "810", "119", "17951", "0"}
}

// before is what is dialed before a national number, or what looks like that.
func before() []string {
	return []string{"0", "1", "8", "06", "9", "15", "90", "021", "17951", "180020"}
}

// neighbours are digits, and what becomes of them when one digit is another, is left out
// or is written twice.
func neighbours(digits string, random *rand.Rand) []string {
	all := []string{digits}
	for i := strings.LastIndexByte(digits, '+') + 1; i < len(digits); i++ {
		other := byte('0' + (int(digits[i]-'0')+1+random.IntN(9))%10)
		all = append(all, digits[:i]+string(other)+digits[i+1:], digits[:i]+digits[i+1:], digits[:i]+digits[i:i+1]+digits[i:])
	}
	return all
}

// comparedRegions are those whose numbers are compared, "" for none among them, and how
// many comparisons there are at least. In ./test/run they are one of twelve, not the same
// each time.
func comparedRegions(regions []string) (compared []string, atLeast int) {
	compared = append(slices.Clone(regions), "")
	if rounds.Of(1) > 1 {
		return compared, 50_000
	}
	next := rand.IntN(12)
	return slices.DeleteFunc(compared, func(string) bool { next++; return next%12 > 0 }), 50_000 / 24
}

// Whatever digits are dialed, wherever that is, they are the number that the library
// makes of them, or none if it makes none.
func TestPhone_AgreesWithTheLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	regions := slices.Sorted(maps.Keys(phonenumbers.GetSupportedRegions()))
	var all countries
	valid, none := 0, 0
	compared, want := comparedRegions(regions)
	for _, region := range compared {
		p := mustPhone(t, region)
		p.countries = &all
		check := func(digits string) {
			if !isDialedForm(digits) {
				return
			}
			if agrees(t, p, digits) {
				valid++
			} else {
				none++
			}
		}
		from := region
		if from == "" {
			from = regions[random.IntN(len(regions))]
		}
		dial := strconv.Itoa(phonenumbers.GetCountryCodeForRegion(from))
		for _, national := range examples(from) {
			for _, digits := range neighbours("+"+dial+national, random) {
				check(digits)
			}
			for _, digits := range neighbours(national, random) {
				check(digits)
			}
			check(dial + national)
			check("+" + national)
			check("+0" + national)
			check("+" + dial + dial + national)
			for _, prefix := range before() {
				check(prefix + national)
				check("+" + dial + prefix + national)
				check(dial + prefix + national)
			}
			for _, prefix := range abroad() {
				check(prefix + dial + national)
				check("+" + prefix + dial + national)
			}
		}
		for range 80 {
			elsewhere := regions[random.IntN(len(regions))]
			for _, national := range examples(elsewhere)[:1] {
				digits := strconv.Itoa(phonenumbers.GetCountryCodeForRegion(elsewhere)) + national
				check("+" + digits)
				check(abroad()[random.IntN(len(abroad()))] + digits)
			}
			length := 1 + random.IntN(maxDialed)
			var digits []byte
			for range length {
				digits = append(digits, byte('0'+random.IntN(10)))
			}
			check(string(digits))
			check("+" + string(digits))
			check("+" + dial + string(digits[:min(length, 15)]))
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d numbers, %d that are none", valid, none)
	if valid < want || none < want {
		t.Errorf("%d numbers and %d that are none were compared; want more", valid, none)
	}
}

func FuzzPhone_AgreesWithTheLibrary(f *testing.F) {
	regions := slices.Sorted(maps.Keys(phonenumbers.GetSupportedRegions()))
	var all countries
	for _, region := range []string{"AR", "AU", "BR", "CN", "DE", "GG", "HK", "IT", "JP", "MG", "MX", "US"} {
		i, national := uint8(slices.Index(regions, region)), examples(region)[0]
		f.Add(national, i)
		f.Add("0"+national, i)
		f.Add("+"+strconv.Itoa(phonenumbers.GetCountryCodeForRegion(region))+national, i)
	}
	f.Fuzz(func(t *testing.T, digits string, region uint8) {
		if !isDialedForm(digits) {
			return
		}
		p := mustPhone(t, regions[int(region)%len(regions)])
		p.countries = &all
		agrees(t, p, digits)
	})
}

// Of all plans that the library has, automata are made.
func TestPhone_AllPlansCompile(t *testing.T) {
	var all countries
	for code := range phonenumbers.GetSupportedCallingCodes() {
		if c := all.forCode(code); len(c.plans) != len(phonenumbers.GetRegionCodesForCountryCode(code)) {
			t.Errorf("+%d: %+v; want all its plans", code, c)
		}
	}
	var states, plans int
	for code := range all {
		if c := all[code].Load(); c != nil {
			for _, p := range c.plans {
				plans++
				if p.numbers.loose || len(p.possible) == 0 || p.leading && len(c.plans) == 1 {
					t.Errorf("%s %s: numbers that digits alone do not tell", c.dial, p.region)
				}
				national, err := syntax.Parse(planLines(c.dial, p.region)["national"], syntax.Perl)
				if err != nil || capturesEmpty(national) {
					t.Errorf("%s %s: a group of the national prefix captures nothing", c.dial, p.region)
				}
				for _, a := range []*automaton{p.numbers, p.national.automaton, p.abroad.automaton} {
					if a != nil {
						states += cap(a.states)
					}
				}
			}
		}
	}
	if bytes := states * int(unsafe.Sizeof(state{})); bytes > 1<<20 || plans < 240 {
		t.Errorf("%d plans take %d bytes; want at most a megabyte", plans, bytes)
	}
}

// capturesEmpty reports whether a group of re matches the empty string.
func capturesEmpty(re *syntax.Regexp) bool {
	if re.Op == syntax.OpCapture && newAutomaton("(?:"+re.Sub[0].String()+")").match("") != 0 {
		return true
	}
	return slices.ContainsFunc(re.Sub, capturesEmpty)
}

// Whoever comes first compiles a plan; all that come meanwhile get the same answer.
func TestPhone_ManyAtOnce(t *testing.T) {
	p := mustPhone(t, "CN")
	regions := slices.Sorted(maps.Keys(phonenumbers.GetSupportedRegions()))[:60]
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, region := range regions {
				want := "+" + strconv.Itoa(phonenumbers.GetCountryCodeForRegion(region)) + examples(region)[0]
				if got, err := p.Parse(want); err != nil || got.E164 != want {
					t.Errorf("Parse(%s) = %v, %v", want, got, err)
				}
			}
		})
	}
	all.Wait()
}

var update = flag.Bool("update", false, "write plans.txt anew, from the library")

// TestPlans_AreThoseOfTheLibrary fails when the library was updated and go generate was
// not run.
func TestPlans_AreThoseOfTheLibrary(t *testing.T) {
	want := libraryPlans(t)
	if *update {
		if err := os.WriteFile("plans.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if plans != want {
		t.Error("plans.txt is not what the library has; run go generate ./proxy/key")
	}
}

// libraryPlans is plans.txt as the library's plans make it.
func libraryPlans(t *testing.T) string {
	t.Helper()
	var codes, texts strings.Builder
	fmt.Fprintf(&codes, "# Generated by go generate from libphonenumber %s; do not edit.\n", metadata.Version)
	all := metadata.CountryCodeToRegion()
	for _, code := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&codes, "+%d %s\n", code, strings.Join(all[code], " "))
		for _, region := range all[code] {
			m, known := metadata.RegionMetadata(region)
			if region == nonGeographic {
				m, known = metadata.NonGeoMetadata(code)
			}
			if !known || m.GetId() != region {
				t.Fatalf("the library has no plan of +%d %s", code, region)
			}
			fmt.Fprintf(&texts, "\nplan +%d %s\n", code, region)
			writePlan(&texts, m)
		}
	}
	return codes.String() + texts.String()
}

func writePlan(b *strings.Builder, m *metadata.PhoneMetadata) {
	line := func(word, text string) {
		if text != "" {
			fmt.Fprintf(b, "%s %s\n", word, text)
		}
	}
	numbers := func(word string, d *metadata.PhoneNumberDesc) {
		if d.GetNationalNumberPattern() != "" {
			line(word, lengthList(d.GetPossibleLength())+" "+d.GetNationalNumberPattern())
		}
	}
	numbers("general", m.GetGeneralDesc())
	line("local", lengthList(m.GetGeneralDesc().GetPossibleLengthLocalOnly()))
	numbers("fixed", m.GetFixedLine())
	numbers("mobile", m.GetMobile())
	numbers("premium", m.GetPremiumRate())
	numbers("toll_free", m.GetTollFree())
	numbers("shared_cost", m.GetSharedCost())
	numbers("voip", m.GetVoip())
	numbers("personal", m.GetPersonalNumber())
	numbers("pager", m.GetPager())
	numbers("uan", m.GetUan())
	numbers("voicemail", m.GetVoicemail())
	if m.GetSameMobileAndFixedLinePattern() {
		line("same", "fixed mobile")
	}
	line("leading", m.GetLeadingDigits())
	line("national", m.GetNationalPrefixForParsing())
	line("transform", m.GetNationalPrefixTransformRule())
	line("abroad", m.GetInternationalPrefix())
}

func lengthList(lengths []int32) string {
	texts := make([]string, 0, len(lengths))
	for _, n := range lengths {
		texts = append(texts, strconv.Itoa(int(n)))
	}
	return strings.Join(texts, ",")
}
