package key

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nyaruka/phonenumbers/v2"
)

// agrees fails the test unless p makes of dialled digits what the library does, by its own
// means. It reports whether they are a number.
func agrees(t testing.TB, p *Phone, digits string) bool {
	t.Helper()
	got, valid, sure := p.number(digits)
	want, is := p.ask(digits)
	if got != want || valid != is || !sure {
		t.Errorf("in %s, %s is %+v, %v, sure %v; to the library it is %+v, %v", p.region, digits, got, valid, sure, want, is)
	}
	return is
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

// abroad is what is dialled in regions before the code of another country, among others.
func abroad() []string { return []string{"00", "011", "001", "010", "0011", "810", "119", "17951", "0"} }

// before is what is dialled before a national number, or what looks like that.
func before() []string { return []string{"0", "1", "8", "06", "9", "15", "90", "021", "17951", "180020"} }

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

// Whatever digits are dialled, wherever that is, they are the number that the library
// makes of them, or none if it makes none.
func TestPhone_AgreesWithTheLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	regions := slices.Sorted(maps.Keys(phonenumbers.GetSupportedRegions()))
	var all countries
	valid, none := 0, 0
	for _, region := range append(regions, "") {
		p := mustPhone(t, region)
		p.countries = &all
		check := func(digits string) {
			if !isDialled(digits) {
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
		for range 150 {
			elsewhere := regions[random.IntN(len(regions))]
			for _, national := range examples(elsewhere)[:1] {
				digits := strconv.Itoa(phonenumbers.GetCountryCodeForRegion(elsewhere)) + national
				check("+" + digits)
				check(abroad()[random.IntN(len(abroad()))] + digits)
			}
			length := 1 + random.IntN(maxDialled)
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
	if valid < 50_000 || none < 50_000 {
		t.Errorf("%d numbers and %d that are none were compared; want more", valid, none)
	}
}
