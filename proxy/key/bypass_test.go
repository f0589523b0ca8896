package key

import (
	"errors"
	"net/http"
	"slices"
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

// guarded is the phone of DESIGN's SMS route: the body decides, the header must
// not say anything else, and the upstream is told the canonical number.
func guarded(t testing.TB) *Spec {
	s := phoneAt(t, "json:/phone")
	s.Name, s.Equal, s.SetHeader = "phone", []Origin{{Header, "X-Phone"}}, "X-Phone-E164"
	return s
}

func TestExtract_CopiesMustAgree(t *testing.T) {
	const good = `{"phone":"13800138000"}`
	for name, c := range map[string]struct {
		body   string
		header []string
		want   string
		err    error
	}{
		"no copy":               {good, nil, "+8613800138000", nil},
		"an empty copy":         {good, []string{""}, "+8613800138000", nil},
		"the same":              {good, []string{"13800138000"}, "+8613800138000", nil},
		"another spelling":      {good, []string{"+86 138-0013-8000"}, "+8613800138000", nil},
		"a number":              {`{"phone":13800138000}`, []string{"13800138000"}, "+8613800138000", nil},
		"a number with a code":  {`{"phone":8613800138000}`, nil, "+8613800138000", nil},
		"null":                  {`{"phone":null}`, nil, "", ErrInvalid},
		"a truth value":         {`{"phone":true}`, nil, "", ErrAmbiguous},
		"a negative number":     {`{"phone":-13800138000}`, nil, "", ErrAmbiguous},
		"another number":        {good, []string{"13900139000"}, "", ErrMismatch},
		"no number":             {good, []string{"x"}, "", ErrMismatch},
		"two copies":            {good, []string{"13800138000", "13800138000"}, "", ErrAmbiguous},
		"only the copy":         {`{}`, []string{"13800138000"}, "", ErrMissing},
		"an invalid original":   {`{"phone":"x"}`, []string{"13800138000"}, "", ErrInvalid},
		"neither":               {`{}`, nil, "", ErrMissing},
		"an ambiguous original": {`{"phone":"1","phone":"2"}`, nil, "", ErrAmbiguous},
	} {
		got, err := extract(guarded(t), sendsJSON(c.body).with("X-Phone", c.header...))
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, err, c.want, c.err)
		}
		if err != nil && !strings.Contains(err.Error(), "json:/phone") {
			t.Errorf("%s: %v; want the key named", name, err)
		}
		secretless(t, err, "138", "139")
	}
}

// A policy that lets a request pass without the key does not let a copy of the
// key pass beside it.
func TestExtract_PoliciesDoNotHideACopy(t *testing.T) {
	for _, policy := range []Missing{Skip, Shared, Use} {
		s := guarded(t)
		s.OnMissing, s.Fallback, s.OnInvalid, s.InvalidFallback = policy, of("global"), policy, of("global")
		for _, body := range []string{`{}`, ``, `{"phone":"x"}`, `{"phone":[]}`} {
			if _, err := extract(s, sendsJSON(body).with("X-Phone", "13800138000")); !errors.Is(err, ErrMismatch) {
				t.Errorf("%s, %q beside a copy = %v; want ErrMismatch", policy, body, err)
			}
			if _, err := extract(s, sendsJSON(body)); err != nil {
				t.Errorf("%s, %q alone = %v; want what the policy says", policy, body, err)
			}
		}
		if _, err := extract(s, sendsJSON(`{"phone":"13800138000"}`).with("X-Phone", "13900139000")); !errors.Is(err, ErrMismatch) {
			t.Errorf("%s, another number = %v; want ErrMismatch", policy, err)
		}
	}
}

func TestExtract_Invalid(t *testing.T) {
	with := func(m Missing) *Spec {
		s := phoneAt(t, "header:X-Phone")
		s.OnInvalid, s.InvalidFallback = m, of("global")
		return s
	}
	var v Value
	for _, m := range []Missing{"", Reject} {
		if err := with(m).Extract(header("x"), &v); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "header:X-Phone") {
			t.Errorf("%q: %v; want ErrInvalid that names the key", m, err)
		}
	}
	if err := with(Skip).Extract(header("x"), &v); err != nil || !v.Skip {
		t.Errorf("skip: %v, %v; want Skip", v.Skip, err)
	}
	if err := with(Use).Extract(header("x"), &v); err != nil || !slices.Equal(v.Parts, []string{"global", ""}) {
		t.Errorf("use: %q, %v; want the other key", v.Parts, err)
	}
	s := with(Shared)
	s.OnMissing = Shared
	if err := s.Extract(header("x"), &v); err != nil || len(v.Parts) != 1 || v.Text() != "" {
		t.Fatalf("shared: %q, %v; want one part without a text", v.Parts, err)
	}
	invalid := slices.Clone(v.Parts)
	v.Reset()
	if err := s.Extract(header("y"), &v); err != nil || !slices.Equal(v.Parts, invalid) {
		t.Errorf("shared: %q, %v; want all that are not valid together", v.Parts, err)
	}
	v.Reset()
	if err := s.Extract(header(), &v); err != nil || slices.Equal(v.Parts, invalid) {
		t.Errorf("shared: %q, %v; want those without the key apart from those with a bad one", v.Parts, err)
	}
}

func TestExtract_SetHeader(t *testing.T) {
	s := guarded(t)
	var v Value
	want := func(name string, fields ...Field) {
		t.Helper()
		if !slices.Equal(v.Set, fields) {
			t.Errorf("%s: set %v; want %v", name, v.Set, fields)
		}
	}
	number := Field{"X-Phone-E164", "+8613800138000"}
	m := sendsJSON(`{"phone":"138 0013 8000","user":"a\nb: c"}`)
	if err := s.Extract(m, &v); err != nil {
		t.Fatal(err)
	}
	want("the canonical number", number)
	if err := s.Extract(m, &v); err != nil {
		t.Fatal(err)
	}
	want("once for one name", number)
	ip := of("client_ip")
	ip.SetHeader = "X-Client"
	m.client = client4("192.0.2.1/32").client
	pair := &Spec{Name: "pair", Join: []*Spec{ip, s}}
	if err := pair.Extract(m, &v); err != nil {
		t.Fatal(err)
	}
	want("of all keys", number, Field{"X-Client", "192.0.2.1"})

	v.Reset()
	s.OnMissing = Skip
	if err := s.Extract(sendsJSON(`{}`), &v); err != nil {
		t.Fatal(err)
	}
	want("without the key, what the client sends is taken away", Field{"X-Phone-E164", ""})
	v.Reset()
	if err := s.Extract(sendsJSON(`{"phone":"x"}`), &v); err == nil {
		t.Fatal("no number was taken")
	}
	want("with an invalid key as well", Field{"X-Phone-E164", ""})

	user := of("json:/user")
	user.SetHeader = "X-User"
	if err := user.Extract(m, &v); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("a text with a line break = %v; want ErrAmbiguous, for it would forge a field", err)
	}
}

// No policy lets a request pass, or counts it elsewhere, of which some server finds
// the key.
func TestExtract_PoliciesDoNotHideOtherReadings(t *testing.T) {
	byClaim := claimOf(opened(t, TokenConfig{Secret: []byte(secret)}), "sub")
	for name, c := range map[string]struct {
		spec *Spec
		r    Request
	}{
		"digits beyond ASCII":    {phoneAt(t, "header:X-Phone"), header("+86 138 0013 800٠")},
		"an extension":           {phoneAt(t, "header:X-Phone"), header("+86 138 0013 8000 ext 7")},
		"text around a number":   {phoneAt(t, "header:X-Phone"), header("to +86 138 0013 8000")},
		"digits, and others":     {of("header:X-Phone", Digits), header("138٠")},
		"beyond ASCII":           {of("header:X-Phone", Lower), header("É")},
		"a folded field":         {of("header:X-Phone"), request{header: http.Header{"X_phone": {"1"}}}},
		"a folded parameter":     {of("query:phone"), sends("", "").asks("phone[]=1")},
		"a folded cookie":        {of("cookie:sid"), request{header: http.Header{"Cookie": {"s.id=1; sid[]=2"}}}},
		"a folded form field":    {of("form:phone"), sendsForm("[phone]=1")},
		"a folded query":         {of("form:phone"), sendsForm("phone=1").asks("phone[]=2")},
		"a folded query, alone":  {of("form:phone"), sendsForm("a=1").asks("phone[]=2")},
		"a form with semicolons": {of("form:phone"), sendsForm("a=1;phone=1")},
		"a form in parts":        {of("form:phone"), sends("multipart/form-data; boundary=B", "x--B\r\n\r\n--B--")},
		"a coded form":           {of("form:phone"), sendsForm("phone=1").with("Content-Encoding", "gzip")},
		"a form without a type":  {of("form:phone"), sends("", "phone=1")},
		"JSON beside a query":    {of("json:/phone"), sendsJSON(`{"phone":"1"}`).asks("phone=2")}, // Rails takes the query
		"a map in the query":     {of("json:/user/phone"), sendsJSON(`{"user":{"phone":"1"}}`).asks("user[phone]=2")},
		"a query in its place":   {of("json:/phone"), sendsJSON(`{}`).asks("phone[]=2")},
		"JSON and more":          {of("json:/phone"), sendsJSON(`{"phone":"1"}x`)},
		"JSON that is deep":      {of("json:/phone"), sendsJSON(`{"phone":"1","x":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `}`)},
		"JSON without UTF-8":     {of("json:/phone"), sendsJSON("{\"phone\":\"1\",\"x\":\"\xff\"}")},
		"JSON, half a surrogate": {of("json:/phone"), sendsJSON(`{"phone":"1","x":"\ud800"}`)},
		"JSON with a comment":    {of("json:/phone"), sendsJSON(`{"phone":"1"/**/}`)},
		"JSON with NaN":          {of("json:/phone"), sendsJSON(`{"phone":"1","x":NaN}`)},
		"two blanks":             {byClaim, sends("", "").with("Authorization", "Bearer  x")},
		"no scheme":              {byClaim, sends("", "").with("Authorization", "x.y.z")},
		"Bearer hidden":          {byClaim, sends("", "").with("Authorization", "Basic x, Bearer x")},
	} {
		for _, policy := range []Missing{Reject, Skip, Shared, Use} {
			s := *c.spec
			s.OnMissing, s.Fallback, s.OnInvalid, s.InvalidFallback = policy, of("global"), policy, of("global")
			if got, err := extract(&s, c.r); !errors.Is(err, ErrAmbiguous) {
				t.Errorf("%s, %s: %q, %v; want ErrAmbiguous", name, policy, got, err)
			}
			secretless(t, extractError(&s, c.r), "138", "x.y")
		}
	}
}

func extractError(s *Spec, r Request) error {
	_, err := extract(s, r)
	return err
}
