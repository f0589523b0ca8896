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
