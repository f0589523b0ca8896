package key

import (
	"errors"
	"net/http"
	"slices"
	"testing"
)

// The function for the most common key finds what the general rule finds, for every short text of
// some bytes, whatever else the key and the request have.
func TestExtract_PlainHeaderAgreesWithTheGeneralRule(t *testing.T) {
	texts := []string{""}
	for from := 0; len(texts[from]) < 3; from++ {
		for _, c := range []byte("aZ7 \t\x00\x7f\xb2\xc3\xa9") {
			texts = append(texts, texts[from]+string([]byte{c}))
		}
	}
	specs := []*Spec{of("header:X-Phone"), of("header:X-Phone", Trim), of("query:x"), of("client_ip")}
	for _, missing := range []Missing{Skip, Shared} {
		s := of("header:X-Phone")
		s.OnMissing, s.OnInvalid = missing, missing
		specs = append(specs, s)
	}
	set := of("header:X-Phone")
	set.SetHeader = "X-Set"
	equal := of("header:X-Phone")
	equal.Equal = []Origin{{Header, "X-Other"}}
	specs = append(specs, set, equal)
	plain := 0
	for _, text := range texts {
		for _, h := range []http.Header{
			{"X-Phone": {text}}, {"X-Phone": {text, text}}, {}, {"X-Phone": {text}, "X_phone": {"b"}}, {"X-Phone": {text}, "X-Other": {"b"}},
		} {
			r := request{header: h}
			for _, s := range specs {
				if _, ok := s.plainHeader(r); ok {
					plain++
				}
				var one, two Value
				err, want := s.Extract(r, &one), s.extractOne(r, &two)
				if (err == nil) != (want == nil) || want != nil && err.Error() != want.Error() || errors.Is(err, ErrMissing) != errors.Is(want, ErrMissing) {
					t.Fatalf("%s of %q: %v; want %v", s.Name, h, err, want)
				}
				if err == nil && (!slices.Equal(one.Parts, two.Parts) || !slices.Equal(one.components, two.components) || one.Skip != two.Skip || !slices.Equal(one.Set, two.Set)) {
					t.Fatalf("%s of %q: %+v; want %+v", s.Name, h, one, two)
				}
			}
		}
	}
	if plain < 100 {
		t.Errorf("%d texts are plain; want more", plain)
	}
}
