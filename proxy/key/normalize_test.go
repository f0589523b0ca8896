package key

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// extracted returns the text of the key that a query has for user.
func extracted(s *Spec, text string) (string, error) {
	var v Value
	err := s.Extract(&sentRequest{request: request{query: url.Values{"user": {text}}}}, &v)
	if err != nil {
		return "", err
	}
	return v.Text(), nil
}

func steps(all ...Step) *Spec {
	return &Spec{Name: "user", From: Origin{Query, "user"}, Normalize: all}
}

// Spellings that databases compare as equal are one key by nfkc and fold, and other texts are not.
func TestNormalize_OneKeyForAllSpellings(t *testing.T) {
	for _, c := range []struct {
		steps     []Step
		want      string
		spellings []string
	}{
		{[]Step{Trim, NFKC, Fold}, "bob", []string{"bob", "BOB", "ｂｏｂ", "ＢＯＢ", "bｏb", " Bob ", "𝐛𝐨𝐛", "ⓑⓞⓑ", "b\u00ADo\u200Bb", "bo\uFE0Fb", "bo\u034Fb"}},
		{[]Step{NFKC, Fold}, "josé", []string{"josé", "jose\u0301", "JOSÉ", "JOSE\u0301", "ｊosé"}},
		{[]Step{Fold}, "josé", []string{"josé", "jose\u0301", "JOSÉ"}},
		{[]Step{NFKC, Fold}, "sam", []string{"sam", "ſam", "SAM", "ſAM"}},
		{[]Step{NFKC, Fold}, "strasse k å", []string{"straße K å", "STRASSE K Å", "STRAẞE \u212A \u212B"}},
		{[]Step{NFKC, Fold}, "σας", nil},
		{[]Step{NFKC}, "Bob", []string{"Bob", "Ｂｏｂ"}},
		{[]Step{NFKC}, "josé", []string{"josé", "jose\u0301"}},
		{[]Step{Lower}, "bob", []string{"bob", "BOB"}},
	} {
		for _, text := range c.spellings {
			if got, err := extracted(steps(c.steps...), text); got != c.want || err != nil {
				t.Errorf("%v of %q = %q, %v; want %q", c.steps, text, got, err, c.want)
			}
		}
	}
	for _, other := range []string{"bøb", "b0b", "bo b", "bobb", "вob"} {
		if got, err := extracted(steps(NFKC, Fold), other); got == "bob" || err != nil {
			t.Errorf("%q = %q, %v; want another key than bob", other, got, err)
		}
	}
}

// Digits of other scripts are refused by digits and e164 whatever comes before: some upstreams drop them.
func TestNormalize_DigitsOfOtherScriptsStayRefused(t *testing.T) {
	phone, err := NewPhone("CN", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	withPhone := steps(NFKC, E164)
	withPhone.Phone = phone
	for _, s := range []*Spec{steps(NFKC, Digits), steps(Fold, Digits), withPhone} {
		if got, err := extracted(s, "１3800138000"); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%v: %q, %v; want ErrAmbiguous", s.Normalize, got, err)
		}
		if got, err := extracted(s, "+8613800138000"); !strings.HasSuffix(got, "8613800138000") || err != nil {
			t.Errorf("%v: %q, %v", s.Normalize, got, err)
		}
	}
}

// A text of invisible characters alone is no key, and a list has its values in the same form.
func TestNormalize_EmptyAndLists(t *testing.T) {
	if got, err := extracted(steps(Fold), "\u00AD\u034F"); err == nil {
		t.Errorf("invisible text is the key %q", got)
	}
	user := steps(NFKC, Fold)
	l, problems := ListOf(user, []string{"JOSE\u0301"})
	var v Value
	if err := user.Extract(&sentRequest{request: request{query: url.Values{"user": {"josé"}}}}, &v); err != nil || len(problems) > 0 || !l.Has(&v) {
		t.Errorf("josé is not on the list: %v, %v", err, problems)
	}
}

func FuzzNormalize_Fold(f *testing.F) {
	for _, s := range []string{"bob", "ſ", "ß", "İ", "ǰ", "\u0345", "ﬃ", "\xff", "e\u0301", "ά\u0345"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		once := Fold.Apply(s)
		if twice := Fold.Apply(once); twice != once {
			t.Fatalf("fold of %+q is %+q, and of that %+q", s, once, twice)
		}
		for name, same := range map[string]string{"NFC": norm.NFC.String(s), "NFD": norm.NFD.String(s), "lower": strings.Map(onlyASCII(strings.ToLower), s), "upper": strings.Map(onlyASCII(strings.ToUpper), s)} {
			if got := Fold.Apply(same); got != once {
				t.Fatalf("fold of %+q is %+q, and of its %s %+q", s, once, name, got)
			}
		}
	})
}

// onlyASCII applies f to letters of ASCII.
func onlyASCII(f func(string) string) func(rune) rune {
	return func(r rune) rune {
		if r < utf8.RuneSelf {
			return rune(f(string(r))[0])
		}
		return r
	}
}

func ExampleStep_Apply() {
	fmt.Println(Fold.Apply(NFKC.Apply("Ｂｏｂ")))
	// Output: bob
}
