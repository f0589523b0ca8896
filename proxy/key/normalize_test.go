package key

import (
	"fmt"
	"net/url"
	"slices"
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

// Spellings of one number are one key by digits, and those that databases compare as equal by nfkc and fold. Other
// texts are not.
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
		{[]Step{NFKC}, "Bob", []string{"Bob", "Ｂｏｂ"}},
		{[]Step{NFKC}, "josé", []string{"josé", "jose\u0301"}},
		{[]Step{Lower}, "bob", []string{"bob", "BOB"}},
		{[]Step{Trim, Lower}, "alice b", []string{" ALICE b ", "Alice B"}},
		{[]Step{Trim}, "Alice B", []string{" Alice B "}},
		{nil, "Alice B", []string{"Alice B"}},
		{[]Step{Digits}, "8613800138000", []string{
			"8613800138000", "+86 138 0013 8000", "+86-138-0013-8000", "(+86) 138.0013.8000", " 8613800138000\t",
			"+86‐138‐0013‐8000", "\u200e86138\u00a000138000", "phone: 8613800138000",
		}},
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

// A text of invisible characters alone is no key, and a list has its values in the same form.
func TestNormalize_EmptyAndLists(t *testing.T) {
	if got, err := extracted(steps(Fold), "\u00AD\u034F"); err == nil {
		t.Errorf("invisible text is the key %q", got)
	}
	user := steps(NFKC, Fold)
	l, problems := ParseList(user, slices.Values([]string{"JOSE\u0301"}))
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

func TestMask(t *testing.T) {
	for _, c := range []struct {
		text string
		head int
		want string
	}{
		{"+8613800138000", 3, "+86138****8000"},
		{"+861380013", 3, "+861*****3"},
		{"+12125551234", 2, "+121******34"},
		{"+5491123456789", 3, "+54911****6789"},
		{"+491512345678901", 3, "+49151******8901"},
		{"+29012345", 4, "+2901***5"},
		{"+86", 3, "+86"},
		{"alice@example.com", 0, "alic****.com"},
		{"abcdefgh", 0, "ab****gh"},
		{"abcd", 0, "a****d"},
		{"abc", 0, "****"},
		{"a", 0, "****"},
		{"", 0, "****"},
		{"üöäßüöäß", 0, "üö****äß"},
		{strings.Repeat("x", 1000), 0, "xxxx****xxxx"},
	} {
		if got := Mask(c.text, c.head); got != c.want {
			t.Errorf("Mask(%q, %d) = %q; want %q", c.text, c.head, got, c.want)
		}
	}
}

func FuzzMask(f *testing.F) {
	f.Add("alice@example.com")
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		shown := utf8.RuneCountInString(Mask(s, 0)) - 4
		if n := utf8.RuneCountInString(s); shown > n/2 {
			t.Fatalf("Mask(%q) = %q shows %d of %d", s, Mask(s, 0), shown, n)
		}
	})
}

// A Value shows what it has extracted last, and remembers it until Reset. A key that all who lack it share is shown by
// its name.
func TestValue_Shown(t *testing.T) {
	phone := guarded(t)
	phone.OnMissing = Shared
	var v Value
	shows := func(body, want string) {
		t.Helper()
		if err := phone.Extract(sendsJSON(body), &v); err != nil || v.Shown() != want {
			t.Errorf("%s: %q, %v; want %q", body, v.Shown(), err, want)
		}
	}
	shows(`{}`, "phone")
	shows(`{"phone":"13800138000"}`, "phone")
	v.Reset()
	shows(`{"phone":"13800138000"}`, "phone=+8613800138000")
}
