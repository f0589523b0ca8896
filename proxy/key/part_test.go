package key

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParsePart(t *testing.T) {
	for _, c := range []struct {
		in   string
		drop int
		want string // of +8613800138000; "" for ErrSpec
	}{
		{"country", 0, "CN"}, {"dial_code", 0, "+86"}, {"prefix", 1, "+861380013800"}, {"prefix", 4, "+861380013"}, {"prefix", 10, "+861"},
		{"country", 1, ""}, {"dial_code", 4, ""}, {"prefix", 0, ""}, {"prefix", -1, ""}, {"prefix", 11, ""}, {"region", 0, ""}, {"", 0, ""},
	} {
		part, err := ParsePart(c.in, c.drop)
		if c.want == "" {
			if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), ";") {
				t.Errorf("ParsePart(%q, %d) = %v; want an ErrSpec that says what to write", c.in, c.drop, err)
			}
			continue
		}
		phone := phoneAt(t, "header:X-Phone")
		var v Value
		s := &Spec{Name: "part", Of: phone, Part: part}
		if err != nil || s.Extract(header("13800138000"), &v) != nil || !slices.Equal(v.Parts, []string{"part", c.want}) {
			t.Errorf("part %s %d = %q, %v; want %q", c.in, c.drop, v.Parts, err, c.want)
		}
	}
	short := Number{E164: "+29012345", Dial: "+290"}
	if got := (Part{Prefix, 10}).of(short); got != "+290" {
		t.Errorf("a prefix that drops more than there is = %q; want the country code", got)
	}
}

func TestExtract_PartGoesByItsPhone(t *testing.T) {
	phone := phoneAt(t, "header:X-Phone")
	country := &Spec{Name: "country", Of: phone, Part: Part{Kind: Country}, SetHeader: "X-Country"}
	if _, err := extract(country, header()); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "X-Phone") {
		t.Errorf("without the phone = %v; want ErrMissing that names its origin", err)
	}
	if _, err := extract(country, header("x")); !errors.Is(err, ErrInvalid) {
		t.Errorf("with no phone = %v; want ErrInvalid", err)
	}
	var v Value
	if err := country.Extract(header("13800138000"), &v); err != nil || !slices.Equal(v.Set, []Field{{"X-Country", "CN"}}) {
		t.Errorf("set = %v, %v; want the country", v.Set, err)
	}
	phone.OnMissing = Skip
	v.Reset()
	if err := country.Extract(header(), &v); err != nil || !v.Skip || !slices.Equal(v.Set, []Field{{"X-Country", ""}}) {
		t.Errorf("skipped = %+v, %v; want no country for the upstream", v, err)
	}
}

// Values that no number has are not values of a list, and the one that is meant is named.
func TestPart_TextsThatNoNumberHas(t *testing.T) {
	phone, err := NewPhone("", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	of := &Spec{Name: "phone", From: HeaderField("X-Phone"), Normalize: []Step{E164}, Phone: phone}
	country := &Spec{Name: "country", Of: of, Part: Part{Kind: Country}}
	code := &Spec{Name: "code", Of: of, Part: Part{Kind: DialCode}}
	prefix := &Spec{Name: "prefix", Of: of, Part: Part{Kind: Prefix, Drop: 4}}
	for _, c := range []struct {
		spec       *Spec
		text, want string
	}{
		{country, "GB", ""}, {country, "XK", ""}, {country, "AQ", ""}, {country, "001", ""},
		{country, "UK", "write GB"}, {country, "uk", "write GB"}, {country, "EL", "write GR"}, {country, "de", "write DE"},
		{country, "XX", "of ISO 3166"}, {country, "DEU", "of ISO 3166"}, {country, "AQ BV", "of ISO 3166"}, {country, "+49", "of ISO 3166"},
		{code, "+86", ""}, {code, "1", ""}, {code, "+881", ""}, {code, "+8", "write for example +86"}, {code, "+999", "write for example +86"}, {code, "+861", "write for example +86"},
		{prefix, "+861380013", ""}, {prefix, "+8", "write for example +86"}, {prefix, "+9991234", "write for example +86"},
	} {
		_, problems := ListOf(c.spec, []string{c.text})
		if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Err.Error(), c.want)) {
			t.Errorf("%s %q: %v; want %q", c.spec.Name, c.text, problems, c.want)
		}
	}
}

// A key that is called like a secret is masked where it is shown, as a sensitive one is.
func TestSpec_SecretsAreMasked(t *testing.T) {
	for _, s := range []*Spec{{Name: "token", From: HeaderField("Authorization"), Secret: true}, {Name: "token", From: HeaderField("Authorization"), Sensitive: true}} {
		if got, want := (Display{}).Texts(s.Shapes(), []string{"Bearer abcdefghijkl"}), "token=Bear****ijkl"; got != want || !s.IsConcealed() {
			t.Errorf("%q, %v; want %q", got, s.IsConcealed(), want)
		}
	}
}
