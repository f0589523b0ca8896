package simulate

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// Strings of JSON are read as encoding/json reads them; whatever that refuses between
// quotes is refused, but for \x, which nginx writes.
func TestUnescape_AgreesWithEncodingJSON(t *testing.T) {
	check := func(s string) {
		t.Helper()
		var want string
		wantErr := json.Unmarshal([]byte(`"`+s+`"`), &want)
		got, err := unescape([]byte(s))
		if (err == nil) != (wantErr == nil) || err == nil && string(got) != want {
			t.Errorf("%q: %q, %v; want %q, %v", s, got, err, want, wantErr)
		}
	}
	for _, s := range []string{
		"", "a", `\"`, `\\`, `\/`, `\b\f\n\r\t`, `a\u00fcb`, `\u00FC`, `\u00fg`, `\u00f`, `\u`, `\q`, `a\`, `\ud83d\ude00`, `\uD83D\uDE00!`,
		`\ud83d`, `\ud83d!`, `\ud83d\`, `\ud83d\n`, `\ud83d\u0041`, `\ude00\ud83d`, `\ud83d\ud83d\ude00`, `\ud83d\u00`, "\\u000\x66", `\u000G`, `\u000g`, `\u000/`, `\u000:`, `\u000@`,
	} {
		check(s)
	}
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{`\`, `\`, "u", `\u00e9`, `\ud83d`, `\ude00`, `\u0041`, "a", "9", "0", "F", "n", "/"}
	for range 5000 {
		var b strings.Builder
		for range random.IntN(6) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		check(b.String())
	}
	for s, want := range map[string]string{`\x41\x7e`: "A~", `a\xFf`: "a\xff"} {
		if got, err := unescape([]byte(s)); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v; want %q", s, got, err, want)
		}
	}
	for _, s := range []string{`\x`, `\x4`, `\x4g`, `\xg4`} {
		if got, err := unescape([]byte(s)); err == nil {
			t.Errorf("%q: %q; want an error", s, got)
		}
	}
}

func TestNumber(t *testing.T) {
	for s, want := range map[string]struct {
		whole, billionths int64
		ok                bool
	}{
		"0": {0, 0, true}, "007": {7, 0, true}, "9": {9, 0, true}, "1.5": {1, 500_000_000, true}, "0.000000001": {0, 1, true}, "0.0000000019": {0, 1, true}, "3.": {3, 0, true},
		"1.09": {1, 90_000_000, true}, "1795345547.123": {1795345547, 123_000_000, true},
		"": {}, ".5": {}, "-1": {}, "+1": {}, "1e9": {}, "1,5": {}, "1.5.": {}, "1.:": {}, "/": {}, ":": {}, "1/": {}, "a": {},
		"4611686018427387904": {4611686018427387904, 0, true}, "46116860184273879040": {}, "99999999999999999999": {},
	} {
		if whole, billionths, ok := parseNumber(s); whole != want.whole && ok || billionths != want.billionths && ok || ok != want.ok {
			t.Errorf("%q: %d and %d billionths, %v; want %+v", s, whole, billionths, ok, want)
		}
	}
}
