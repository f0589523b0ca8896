package key

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// TestBypass tries to get a second key for somebody who has one: each row is
// what an attacker would send in the hope that the limiter counts another key
// than the upstream goes by. Each is refused, or is the victim's very key.
func TestBypass(t *testing.T) {
	byHeader, byBody := phoneAt(t, "header:X-Phone"), guarded(t)
	byForm, byCookie, byUser := phoneAt(t, "form:phone"), of("cookie:sid"), of("json:/user")
	tokens := opened(t, TokenConfig{Secret: []byte(secret)})
	byClaim := claimOf(tokens, "sub")
	good := signed(t, signer{jwt.SigningMethodHS256, []byte(secret)}, nil)

	phone := func(values ...string) Request { return header(values...) }
	cookies := func(fields ...string) Request { return request{header: http.Header{"Cookie": fields}} }
	for _, group := range []struct {
		spec    *Spec
		victim  Request
		attacks map[string]Request
	}{
		{byHeader, phone("13800138000"), map[string]Request{
			"abroad": phone("0086 138 0013 8000"), "no plus": phone("8613800138000"), "trunk": phone("013800138000"), "carrier": phone("1795113800138000"),
			"dashes": phone("138-0013-8000"), "en dashes": phone("138–0013–8000"), "full width": phone("１３８００１３８０００"), "Arabic": phone("١٣٨٠٠١٣٨٠٠٠"),
			"mixed digits": phone("1٣8００138000"), "mathematical": phone("𝟏𝟑𝟖𝟎𝟎𝟏𝟑𝟖𝟎𝟎𝟎"), "no-break": phone("138\u00a00013\u00a08000"),
			"zero width": phone("1\u200b3800138000"), "right to left": phone("\u202e13800138000"), "extension 1": phone("13800138000x1"), "extension 2": phone("13800138000 ext. 99999"),
			"tel": phone("tel:13800138000"), "context": phone("tel:13800138000;phone-context=+86"), "parameter": phone("tel:13800138000;x=1"),
			"vanity": phone("13800138000abc"), "lead": phone("to 13800138000"), "list": phone("13800138000,13900139000"), "NUL": phone("13800138000\x00"),
			"twice": phone("13800138000", "13900139000"), "exponent": phone("1.3800138e10"), "hexadecimal": phone("0x336bd8d80"), "too long": phone("138001380001"),
		}},
		{byBody, sendsJSON(`{"phone":"13800138000"}`), map[string]Request{
			"header differs":     sendsJSON(`{"phone":"13800138000"}`).with("X-Phone", "13900139000"),
			"header twice":       sendsJSON(`{"phone":"13800138000"}`).with("X-Phone", "13800138000", "13900139000"),
			"only in the header": sendsJSON(`{}`).with("X-Phone", "13800138000"),
			"duplicate, first":   sendsJSON(`{"phone":"13900139000","phone":"13800138000"}`),
			"duplicate, last":    sendsJSON(`{"phone":"13800138000","phone":"13900139000"}`),
			"duplicate, escaped": sendsJSON(`{"phone":"13900139000","\u0070hone":"13800138000"}`),
			"duplicate, case":    sendsJSON(`{"phone":"13900139000","PHONE":"13800138000"}`),
			"only another case":  sendsJSON(`{"Phone":"13800138000"}`),
			"two documents":      sendsJSON(`{"phone":"13900139000"}{"phone":"13800138000"}`),
			"cut off":            sendsJSON(`{"phone":"13900139000","x":`),
			"a comment":          sendsJSON(`{"phone":"13900139000"/*,"phone":"13800138000"*/}`),
			"a list":             sendsJSON(`{"phone":["13800138000"]}`),
			"an object":          sendsJSON(`{"phone":{"$ne":"1"}}`),
			"a number":           sendsJSON(`{"phone":13800138000}`),
			"a float":            sendsJSON(`{"phone":1.3800138e10}`),
			"escapes":            sendsJSON(`{"phone":"\u00318\u200b00"}`),
			"escaped digits":     sendsJSON(`{"phone":"\u00313800138000"}`),
			"half a surrogate":   sendsJSON(`{"phone":"13800138000\ud800"}`),
			"no UTF-8":           sendsJSON("{\"phone\":\"13800138000\xc0\x80\"}"),
			"byte order mark":    sendsJSON("\ufeff{\"phone\":\"13800138000\"}"),
			"as a form":          sends("application/x-www-form-urlencoded", `{"phone":"13800138000"}`),
			"as text":            sends("text/plain", `{"phone":"13800138000"}`),
			"without a type":     sends("", `{"phone":"13800138000"}`),
			"UTF-7":              sends("application/json; charset=utf-7", `{"phone":"13800138000"}`),
			"compressed":         sendsJSON(`{"phone":"13800138000"}`).with("Content-Encoding", "deflate"),
			"two types":          sendsJSON(`{"phone":"13800138000"}`).with("Content-Type", "application/json", "application/xml"),
			"deep":               sendsJSON(strings.Repeat(`{"phone":`, 5000) + `"13800138000"` + strings.Repeat("}", 5000)),
			"an array around":    sendsJSON(`[{"phone":"13800138000"}]`),
		}},
		{byUser, sendsJSON(`{"user":42}`), map[string]Request{
			"42.0": sendsJSON(`{"user":42.0}`), "42e0": sendsJSON(`{"user":42e0}`), "4.2e1": sendsJSON(`{"user":4.2e1}`), "420e-1": sendsJSON(`{"user":420e-1}`),
			"a little more": sendsJSON(`{"user":42.000000000000000000001}`), "leading zero": sendsJSON(`{"user":042}`), "plus": sendsJSON(`{"user":+42}`), "NaN": sendsJSON(`{"user":NaN}`),
			"blanks": sendsJSON("{\"user\" :\n\t42 }"), "more fields": sendsJSON(`{"a":[1,{"user":1}],"user":42}`),
		}},
		{byForm, sendsForm("phone=13800138000"), map[string]Request{
			"duplicate": sendsForm("phone=13900139000&phone=13800138000"), "escaped name": sendsForm("p%68one=13800138000"), "plus": sendsForm("phone=+13800138000"),
			"list": sendsForm("phone=13900139000&phone[]=13800138000"), "case": sendsForm("phone=13900139000&Phone=13800138000"), "semicolon": sendsForm("phone=13900139000;phone=13800138000"),
			"query too": sendsForm("phone=13900139000").asks("phone=13800138000"), "parts": sendsParts(part("phone", "138 0013 8000")),
			"parts, duplicate": sendsParts(part("phone", "13900139000"), part("phone", "13800138000")),
			"parts, a file":    sendsParts(part("phone", "13900139000"), "Content-Disposition: form-data; name=\"phone\"; filename=\"x\"\n\n13800138000"),
			"parts, encoded":   sendsParts("Content-Transfer-Encoding: base64\n" + part("phone", "MTM4MDAxMzgwMDA=")),
		}},
		{byCookie, cookies("sid=abc"), map[string]Request{
			"duplicate": cookies("sid=x; sid=abc"), "two fields": cookies("sid=x", "sid=abc"), "case": cookies("sid=x; SID=abc"), "escaped": cookies("sid=%61b%63"),
			"quoted": cookies(`sid="abc"`), "octal": cookies(`sid="\141bc"`), "comma": cookies("sid=x, sid=abc"), "in quotes": cookies(`a="; sid=x"; sid=abc`), "blanks": cookies("  sid = abc  ; a=b"),
		}},
		{byClaim, bears(good), map[string]Request{
			"none": bears(unsigned(`{"alg":"none"}`, `{"sub":"eve","exp":99999999999}`)), "changed": bears(forge(good, `{"sub":"eve","exp":99999999999}`)),
			"two fields": sends("", "").with("Authorization", "Bearer "+good, "Bearer x"), "scheme in capitals": sends("", "").with("Authorization", "BEARER "+good),
			"padding": bears(good + "=="), "other secret": bears(signed(t, signer{jwt.SigningMethodHS256, []byte("another secret of thirty-two bytes")}, jwt.MapClaims{"sub": "eve"})),
		}},
	} {
		var v Value
		if err := group.spec.Extract(group.victim, &v); err != nil {
			t.Fatalf("%s: the victim is refused: %v", group.spec.Name, err)
		}
		victim := Hash("", v.Parts)
		for name, r := range group.attacks {
			v.Reset()
			err := group.spec.Extract(r, &v)
			switch {
			case err == nil && (v.Skip || Hash("", v.Parts) != victim):
				t.Errorf("%s, %s: counted as %q", group.spec.Name, name, v.Parts)
			case err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrAmbiguous) && !errors.Is(err, ErrMissing) && !errors.Is(err, ErrMismatch):
				t.Errorf("%s, %s: %v; want one of this package's errors", group.spec.Name, name, err)
			}
			secretless(t, err, "138001", "139001", "eve", "abc")
		}
	}
}
