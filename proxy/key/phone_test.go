package key

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/nyaruka/phonenumbers/v2"
)

func mustPhone(t testing.TB, region string, allow ...LineType) *Phone {
	t.Helper()
	p, err := NewPhone(region, allow, RefuseExtensions)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// phoneAt is the key of a phone number, of China unless it says otherwise.
func phoneAt(t testing.TB, origin string) *Spec {
	t.Helper()
	s := of(origin, E164)
	s.Phone = mustPhone(t, "CN")
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s
}

// spellings are one number each, for a region.
func spellings() map[string]map[string][]string {
	return map[string]map[string][]string{
		"CN": {"+8613800138000": {
			"+8613800138000", "008613800138000", "8613800138000", "13800138000", "013800138000",
			"+86 138-0013-8000", "+86 138 0013 8000", "(+86)138 0013 8000", "(+86) 138.0013.8000", "+86 (0) 138 0013 8000", "138/0013/8000",
			"＋86　138－0013－8000", "＋86 13800138000", "（＋86）13800138000",
			"tel:+86-138-0013-8000", "TEL:+86-138-0013-8000", "ｔｅｌ：13800138000",
			" 13800138000\t", "\u00a013800138000\u3000", "138\u00a00013\u20098000", "138–0013—8000", "138‐0013‑8000", "138−0013−8000",
			"\u200b13800138000", "138\u200d00138000", "\u202a+8613800138000\u202c", "\ufeff13800138000", "138\u00ad00138000", "\u2068+86 138 0013 8000\u2069",
			"17951 13800138000",
		}},
		"US": {
			"+12125551234":   {"1 (212) 555-1234", "(212) 555-1234", "212.555.1234", "+1 212 555 1234", "12125551234", "011 1 212 555 1234"},
			"+8613800138000": {"+8613800138000", "011 86 138 0013 8000"},
		},
		"IT": {"+390669812345": {"+39 06 698 12345", "06 698 12345", "0039 06 698 12345", "+390669812345"}},
		"MX": {"+525512345678": {"+52 1 55 1234 5678", "+52 55 1234 5678", "55 1234 5678"}},
		"AR": {"+5491123456789": {"+54 9 11 2345 6789", "011 15 2345 6789", "+5491123456789"}},
		"GB": {"+442079460018": {"+44 (0)20 7946 0018", "020 7946 0018", "0044 20 7946 0018"}},
		"":   {"+8613800138000": {"+8613800138000", "+86 138 0013 8000", "tel:+86-138-0013-8000"}},
	}
}

func TestPhone_OneNumberIsOneKey(t *testing.T) {
	for region, numbers := range spellings() {
		p := mustPhone(t, region)
		for want, all := range numbers {
			for _, s := range all {
				for range 2 { // the second time it is remembered
					if got, err := p.Parse(s); err != nil || got.E164 != want {
						t.Errorf("in %q, Parse(%q) = %q, %v; want %s", region, s, got.E164, err, want)
					}
				}
			}
		}
	}
}

func notPhones() []string {
	return []string{
		"", " ", "+", "abc", "13800138000abc", "1-800-FLOWERS", "phone 13800138000", "tel 13800138000", "tel:", "sms:+8613800138000",
		"++8613800138000", "+86+13800138000", "86+13800138000", "1380013800", "138001380000", "+86 138 0013 8000 0", "110",
		"13800138000,13900139000", "13800138000;13900139000", "13800138000/13900139000", "13800138000\n", "138\r\n00138000", "13800138000\x00",
		"13800138000;phone-context=+1", "13800138000;isub=1", "13800138000;ext=", "13800138000;ext=1;ext=2", "13800138000 ext 5 6", "13800138000 x", "13800138000x5x6", "x5", "８６１３８００１３８０００", "+٨٦١٣٨٠٠١٣٨٠٠٠", "१३८००१३८०००", "𝟪𝟨𝟣𝟥𝟪𝟢𝟢𝟣𝟥𝟪𝟢𝟢𝟢",
		"13800138000#5", "-13800138000", ". 13800138000", "13800138000*5", "138００138000e1", "1.38e10", "0x336da9880", "½13800138000", "①③⑧00138000", "١٣٨abc", "138\xff00138000",
		"<13800138000>", "%2B8613800138000", "\"13800138000\"", "[13800138000]", "null", "true", strings.Repeat("1", 25), strings.Repeat(" ", 200) + "13800138000", strings.Repeat("0", 10000),
		"+999 13800138000", "+86", "+8610086",
	}
}

// An extension is not texted, and not one server in two makes the same of it.
func TestPhone_Extensions(t *testing.T) {
	refuses := mustPhone(t, "CN")
	keeps, err := NewPhone("CN", nil, KeepExtensions)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		"tel:+8613800138000;ext=5", "+86 138 0013 8000 ext. 5", "+86 138 0013 8000 ext 12345", "+8613800138000x5",
		"13800138000 X 77", "+86 138 0013 8000;ext=5", "+8613800138000 extension 9",
	} {
		if got, err := refuses.Parse(s); !errors.Is(err, ErrAmbiguous) || got != (Number{}) {
			t.Errorf("Parse(%q) = %v, %v; want ErrAmbiguous", s, got, err)
		}
		if got, err := keeps.Parse(s); err != nil || got.E164 != "+8613800138000" {
			t.Errorf("Parse(%q), kept = %v, %v; want the one number", s, got, err)
		}
	}
}

func TestPhone_RefusesWhatIsNone(t *testing.T) {
	p := mustPhone(t, "CN")
	for _, s := range notPhones() {
		for range 2 {
			got, err := p.Parse(s)
			want := ErrInvalid // all find no number here
			if _, _, ok := dialedDigits(s); !ok && strings.ContainsFunc(s, unicode.IsNumber) {
				want = ErrAmbiguous // some could find one
			}
			if !errors.Is(err, want) || got != (Number{}) {
				t.Errorf("Parse(%q) = %+v, %v; want %v and nothing else", s, got, err, want)
			}
			secretless(t, err, "138", "139")
		}
	}
	if _, err := mustPhone(t, "").Parse("13800138000"); !errors.Is(err, ErrInvalid) {
		t.Errorf("without a region, a number without a plus = %v; want ErrInvalid", err)
	}
}

func TestPhone_KnowsLines(t *testing.T) {
	for _, c := range []struct {
		number string
		want   Number
	}{
		{"+8613800138000", Number{"+8613800138000", "CN", "+86", Mobile}},
		{"+86 10 6552 9988", Number{"+861065529988", "CN", "+86", Fixed}},
		{"+1 212 555 1234", Number{"+12125551234", "US", "+1", FixedOrMobile}},
		{"+1 416 555 1234", Number{"+14165551234", "CA", "+1", FixedOrMobile}},
		{"+1 900 555 1234", Number{"+19005551234", "US", "+1", Premium}},
		{"+1 800 555 1234", Number{"+18005551234", "US", "+1", TollFree}},
		{"+800 1234 5678", Number{"+80012345678", "001", "+800", TollFree}},
		{"+44 7624 000000", Number{E164: "+447624000000", Dial: "+44"}},
		{"+44 70 1234 5678", Number{"+447012345678", "GB", "+44", Personal}},
		{"+44 56 1234 5678", Number{"+445612345678", "GB", "+44", VoIP}},
		{"+44 3444 111 222", Number{"+443444111222", "GB", "+44", UAN}},
		{"+44 7640 123456", Number{"+447640123456", "GB", "+44", Pager}},
	} {
		got, err := mustPhone(t, "CN").Parse(c.number)
		if c.want.Type == "" {
			got.Type, got.Country = "", ""
		}
		if err != nil || got != c.want {
			t.Errorf("Parse(%s) = %+v, %v; want %+v", c.number, got, err, c.want)
		}
	}
}

// Each type has examples in the numbering plans, but for the one that means that a
// plan does not tell, which some say of both fixed and mobile lines.
func TestPhone_KnowsAllTypes(t *testing.T) {
	p := mustPhone(t, "CN")
	for kind := phonenumbers.FIXED_LINE; kind <= phonenumbers.VOICEMAIL; kind++ {
		if kind == phonenumbers.FIXED_LINE_OR_MOBILE {
			continue
		}
		told := 0
		for _, region := range slices.Sorted(maps.Keys(phonenumbers.GetSupportedRegions())) {
			n := phonenumbers.GetExampleNumberForTypeInRegion(region, kind)
			if n == nil {
				continue
			}
			got, err := p.Parse(phonenumbers.Format(n, phonenumbers.E164))
			switch {
			case err != nil || !slices.Contains(lineTypes(), got.Type):
				t.Errorf("type %d in %s: %+v, %v", kind, region, got, err)
			case got.Type == lineType(kind):
				told++
			}
		}
		if told == 0 {
			t.Errorf("of no example of type %d it is told that it is %s", kind, lineType(kind))
		}
	}
}

func TestPhone_TakesOnlyAllowedLines(t *testing.T) {
	p := mustPhone(t, "CN", Mobile, FixedOrMobile)
	for number, want := range map[string]bool{
		"+8613800138000": true, "+12125551234": true, "+861065529988": false, "+19005551234": false, "+18005551234": false, "+445612345678": false,
	} {
		_, err := p.Parse(number)
		if (err == nil) != want || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("Parse(%s) = %v; want taken: %v", number, err, want)
		}
		secretless(t, err, number[1:])
	}
}

func TestNewPhone_SaysWhatToWrite(t *testing.T) {
	for _, region := range []string{"cn", "86", "China", "XX", "ZZ", "001"} {
		if _, err := NewPhone(region, nil, ""); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "write") {
			t.Errorf("NewPhone(%q) = %v; want an ErrSpec that says what to write", region, err)
		}
	}
	for _, want := range lineTypes() {
		if got, err := ParseLineType(string(want)); err != nil || got != want {
			t.Errorf("ParseLineType(%s) = %s, %v", want, got, err)
		}
	}
	if _, err := ParseLineType("unknown"); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "fixed_or_mobile") {
		t.Errorf("ParseLineType(unknown) = %v; want an ErrSpec that lists the types", err)
	}
}

func FuzzPhone(f *testing.F) {
	for _, numbers := range spellings() {
		for _, all := range numbers {
			for _, s := range all {
				f.Add(s)
			}
		}
	}
	for _, s := range notPhones() {
		f.Add(s)
	}
	p := mustPhone(f, "CN")
	f.Fuzz(func(t *testing.T, s string) {
		digits, _, ok := dialedDigits(s)
		if !ok {
			return
		}
		if again, extension, ok := dialedDigits(digits); !ok || extension || again != digits {
			t.Fatalf("dialed(%q) = %q, and of that %q, %v", s, digits, again, ok)
		}
		n, err := p.Parse(s)
		if err != nil {
			return
		}
		if again, err := p.Parse(n.E164); err != nil || again != n {
			t.Fatalf("Parse(%q) = %+v, and of that %+v, %v", s, n, again, err)
		}
		if !strings.HasPrefix(n.E164, n.Dial) || len(n.E164) > 16 {
			t.Fatalf("Parse(%q) = %+v; want at most 15 digits behind a plus", s, n)
		}
	})
}

// The usual spellings cost less than a microsecond, and the library, which they are
// compared with, a hundred times as much.
func BenchmarkPhone(b *testing.B) {
	for _, c := range []struct{ name, region, number string }{
		{"canonical", "CN", "+8613800138000"},
		{"written", "CN", "+86 138-0013-8000"},
		{"national", "CN", "138 0013 8000"},
		{"prefix", "GB", "020 7946 0018"},
		{"abroad", "US", "011 86 138 0013 8000"},
		{"island", "US", "+1 868 291 1234"}, // one of 25 plans
		{"transformed", "AR", "011 15 2345 6789"},
		{"refused", "CN", "13800138000abc"},
		{"invalid", "CN", "+86138"},
	} {
		p := mustPhone(b, c.region)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Parse(c.number)
			}
		})
		if digits, _, ok := dialedDigits(c.number); ok {
			b.Run(c.name+"/library", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					askLibrary(p, digits)
				}
			})
		}
	}
	b.Run("first of a country", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			newCountry(86)
		}
	})
}
