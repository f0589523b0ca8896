package key

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/rounds"
)

func TestNewPart(t *testing.T) {
	for _, c := range []struct {
		in   PartKind
		drop int
		want string // of +8613800138000; "" for ErrSpec
	}{
		{"country", 0, "CN"}, {"dial_code", 0, "+86"}, {"prefix", 1, "+861380013800"}, {"prefix", 4, "+861380013"}, {"prefix", 10, "+861"},
		{"country", 1, ""}, {"dial_code", 4, ""}, {"prefix", 0, ""}, {"prefix", -1, ""}, {"prefix", 11, ""},
	} {
		part, err := NewPart(c.in, c.drop)
		if c.want == "" {
			if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), ";") {
				t.Errorf("NewPart(%q, %d) = %v; want an ErrSpec that says what to write", c.in, c.drop, err)
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
	phone := mustPhone(t, "")
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
		_, problems := ParseList(c.spec, slices.Values([]string{c.text}))
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

// A sentRequest is a request with all that keys can be read from.
type sentRequest struct {
	request
	host, method string
	body         Body
	bodyErr      error
	bodies       int // times that the body was asked for
}

func (s *sentRequest) Host() string   { return s.host }
func (s *sentRequest) Method() string { return s.method }
func (s *sentRequest) Body() (Body, error) {
	s.bodies++
	return s.body, s.bodyErr
}

// sends is a request with a body.
func sends(kind, body string) *sentRequest {
	return &sentRequest{request: request{header: http.Header{}}, body: Body{Type: kind, Bytes: []byte(body)}}
}

func (s *sentRequest) with(field string, values ...string) *sentRequest {
	s.header[field] = values
	return s
}

func (s *sentRequest) asks(query string) *sentRequest {
	s.query, _ = url.ParseQuery(query)
	return s
}

func sendsJSON(body string) *sentRequest { return sends("application/json", body) }
func sendsForm(body string) *sentRequest { return sends("application/x-www-form-urlencoded", body) }

// sendsParts is a form in parts; each is its headers, an empty line and text.
func sendsParts(parts ...string) *sentRequest {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("--B\r\n" + strings.ReplaceAll(p, "\n", "\r\n") + "\r\n")
	}
	return sends("multipart/form-data; boundary=B", b.String()+"--B--\r\n")
}

func bears(token string) *sentRequest {
	return sends("", "").with("Authorization", "Bearer "+token)
}

// extract is the text that a fresh Value finds.
func extract(s *Spec, r Request) (string, error) {
	var v Value
	err := s.Extract(r, &v)
	return v.Text(), err
}

// secretless fails the test if an error tells what the client sent.
func secretless(t *testing.T, err error, secrets ...string) {
	t.Helper()
	for _, s := range secrets {
		if err != nil && strings.Contains(err.Error(), s) {
			t.Errorf("the error tells %q: %v", s, err)
		}
	}
}

func TestExtract_MessageSources(t *testing.T) {
	m := sends("", "")
	m.host, m.method = "api.example.com", "POST"
	for origin, want := range map[string]string{"host": "api.example.com", "method": "POST"} {
		if got, err := extract(of(origin), m); err != nil || got != want {
			t.Errorf("%s = %q, %v; want %q", origin, got, err, want)
		}
	}
	for _, origin := range []string{"host", "method", "json:/a", "form:a", "descriptor:a"} {
		if _, err := extract(of(origin), request{}); !errors.Is(err, ErrMissing) {
			t.Errorf("%s of a request that has none = %v; want ErrMissing", origin, err)
		}
	}
}

func TestExtract_BodyTooLarge(t *testing.T) {
	for _, origin := range []string{"json:/a", "form:a"} {
		m := sendsJSON(`{"a":1}`)
		m.bodyErr = ErrBodyTooLarge
		s := of(origin)
		s.OnMissing, s.OnInvalid = Skip, Skip
		if _, err := extract(s, m); !errors.Is(err, ErrBodyTooLarge) || !strings.Contains(err.Error(), origin) {
			t.Errorf("%s = %v; want ErrBodyTooLarge that names the key, whatever the policies", origin, err)
		}
	}
}

func TestSpec_OriginsAndHeaders(t *testing.T) {
	phone := of("json:/phone")
	phone.Equal, phone.SetHeader = []Origin{{Header, "X-Phone"}}, "X-Phone-E164"
	phone.OnMissing, phone.Fallback = Use, of("cookie:sid")
	phone.OnInvalid, phone.InvalidFallback = Use, of("jwt:sub")
	pair := &Spec{Join: []*Spec{of("client_ip"), {Of: phone, SetHeader: "X-Country"}}}
	var got []string
	for _, o := range pair.Origins() {
		got = append(got, o.String())
	}
	if want := "client_ip json:/phone header:X-Phone cookie:sid jwt:sub"; strings.Join(got, " ") != want {
		t.Errorf("Origins = %q; want %q", got, want)
	}
	if got := strings.Join(pair.Headers(), " "); got != "X-Country X-Phone-E164" {
		t.Errorf("Headers = %q", got)
	}
}

// Only what a client is given, or somebody has signed, cannot be invented.
func TestSpec_Invented(t *testing.T) {
	or := of("jwt:sub")
	or.OnMissing, or.Fallback = Use, of("header:X-User")
	for spec, want := range map[*Spec]bool{
		of("client_ip"): false, of("jwt:sub"): false, of("global"): false,
		of("header:X-User"): true, of("query:q"): true, of("cookie:sid"): true, of("path:id"): true, of("form:f"): true,
		of("json:/a"): true, of("host"): true, of("method"): true,
		{Of: of("header:X-Phone")}:                         true,
		{Join: []*Spec{of("client_ip"), of("global")}}:     false,
		{Join: []*Spec{of("client_ip"), of("cookie:sid")}}: true,
		or: true,
	} {
		if got := spec.ClientChosen(); got != want {
			t.Errorf("%v: %v; want %v", spec.Origins(), got, want)
		}
	}
}

func TestSpec_Check(t *testing.T) {
	china := mustPhone(t, "CN")
	phone := &Spec{Name: "phone", From: Origin{Header, "X-Phone"}, Normalize: []Step{Trim, E164}, Phone: china}
	good := map[string]*Spec{
		"phone":   phone,
		"part":    {Name: "country", Of: phone, Part: Part{Kind: Country}, SetHeader: "X-Country"},
		"joined":  {Name: "pair", Join: []*Spec{phone, of("client_ip")}},
		"claim":   {Name: "sub", From: Origin{JWT, "sub"}, Tokens: &Tokens{}},
		"instead": {Name: "x", From: Origin{Header, "X"}, OnMissing: Use, Fallback: phone},
	}
	for name, s := range good {
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := map[string]*Spec{
		"claim without keys":       {From: Origin{JWT, "sub"}},
		"copy is a claim":          {From: Origin{Header, "X"}, Equal: []Origin{{JWT, "sub"}}},
		"e164 is not last":         {From: Origin{Header, "X"}, Phone: china, Normalize: []Step{E164, Trim}},
		"part of no phone":         {Of: of("client_ip"), Part: Part{Kind: Country}},
		"joined with set_header":   {Join: []*Spec{phone}, SetHeader: "X"},
		"joined with must_equal":   {Join: []*Spec{phone}, Equal: []Origin{{Header, "X"}}},
		"part with steps":          {Of: phone, Normalize: []Step{Trim}},
		"set_header is no name":    {From: Origin{Header, "X"}, SetHeader: "X Y"},
		"set_header frames a body": {From: Origin{Header, "X"}, SetHeader: "Content-Length"},
		"set_header is the host":   {From: Origin{Header, "X"}, SetHeader: "Host"},
	}
	for name, s := range bad {
		if err := s.Check(); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), ";") && !strings.Contains(err.Error(), "write") {
			t.Errorf("%s: %v; want an ErrSpec that says what to write", name, err)
		}
	}
}

func TestValue_RemembersWhatIsExpensive(t *testing.T) {
	phone := phoneAt(t, "json:/phone")
	country := &Spec{Name: "country", Of: phone, Part: Part{Kind: Country}}
	near := &Spec{Name: "range", Of: phone, Part: Part{Prefix, 4}}
	m := sendsJSON(`{"phone":"13800138000"}`)
	var v Value
	for s, want := range map[*Spec]string{phone: "+8613800138000", country: "CN", near: "+861380013"} {
		if err := s.Extract(m, &v); err != nil || v.Text() != want {
			t.Errorf("%s = %q, %v; want %q", s.Name, v.Text(), err, want)
		}
	}
	if m.bodies != 1 {
		t.Errorf("the body was read %d times; want once for all keys made of it", m.bodies)
	}
	v.Reset()
	m = sendsJSON(`{"phone":"13900139000"}`)
	if err := country.Extract(m, &v); err != nil || m.bodies != 1 {
		t.Errorf("after Reset = %v, %d reads; want the next request's", err, m.bodies)
	}
	if err := phone.Extract(m, &v); err != nil || v.Text() != "+8613900139000" {
		t.Errorf("after Reset = %q, %v", v.Text(), err)
	}
}

func TestValue_RemembersFaults(t *testing.T) {
	phone := phoneAt(t, "json:/phone")
	m := sendsJSON(`{"phone":"1"}`)
	var v Value
	for range 2 {
		if err := phone.Extract(m, &v); !errors.Is(err, ErrInvalid) {
			t.Errorf("Extract = %v; want ErrInvalid, each time", err)
		}
	}
	if m.bodies != 1 {
		t.Errorf("the body was read %d times; want once", m.bodies)
	}
}

func client4(s string) request { return request{client: netip.MustParsePrefix(s)} }

func TestHash(t *testing.T) {
	parts := []string{"phone", "+8613800138000"}
	if got, want := Hash("", parts), limiter.KeyOf(parts...); got != want {
		t.Errorf("without a secret it is %v; want %v, as before there was one", got, want)
	}
	if got, want := Hash("new", parts), limiter.KeyWithSecret([]byte("new"), parts...); got != want {
		t.Errorf("with a secret it is %v; want %v", got, want)
	}
	if Hash("new", parts) == Hash("old", parts) || Hash("new", parts) == Hash("", parts) {
		t.Error("two secrets make one key")
	}
}

// What the comment of Hash says, with a real store: 2/1h is never exceeded while a
// secret is replaced, and the previous one can be dropped an hour later.
func TestHash_RotatingASecretForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := limiter.NewMemory(limiter.MemoryOptions{})
		limit := &limiter.Limit{Name: "sms.phone:1h", Rate: limiter.Rate{Count: 2, Window: time.Hour}}
		parts := []string{"phone", "+8613800138000"}
		take := func(secrets []string) bool {
			t.Helper()
			var claims []limiter.Claim
			for _, secret := range secrets {
				claims = append(claims, limiter.Claim{Limit: limit, Key: Hash(secret, parts), Cost: 1})
			}
			var d limiter.Decision
			if err := store.Take(context.Background(), claims, &d); err != nil {
				t.Fatal(err)
			}
			return d.Allowed
		}
		granted := func(secrets []string) {
			t.Helper()
			if !take(secrets) {
				t.Errorf("refused at %v under %q", time.Now(), secrets)
			}
			time.Sleep(time.Minute) // virtual
		}
		refused := func(secrets []string) {
			t.Helper()
			if take(secrets) {
				t.Errorf("granted at %v under %q", time.Now(), secrets)
			}
			time.Sleep(time.Minute) // virtual
		}
		before, during, after := []string{"old"}, []string{"new", "old"}, []string{"new"}
		granted(before) // 0:00
		granted(during) // 0:01, one proxy has the new secret
		refused(during)
		refused(before)              // another has not yet
		time.Sleep(56 * time.Minute) // 1:00, the first comes back
		granted(during)              // and is taken again
		granted(before)              // 1:01, so is the second
		refused(during)              // 1:02
		time.Sleep(58 * time.Minute) // 2:01, an hour after the last proxy was changed
		granted(during)              // 2:01
		granted(after)               // 2:02, the previous secret is dropped
		refused(after)               // and what was taken before still counts
	})
}

// A Memo finds the key that Hash finds, whatever it was asked before, and costs no allocation.
func TestMemo_IsHash(t *testing.T) {
	long := strings.Repeat("x", maxMemo)
	texts := [][]string{{"a", "b"}, {"ab"}, {"a", "b"}, {"", "ab"}, {"a", ""}, {"a"}, {}, {"", ""}, {""}, {long}, {long[1:]}, {long[1:], ""}, {long[2:]}, {"a", long}, {"a", "b"}}
	var m Memo
	for _, secret := range []string{"", "s", "t", ""} {
		for _, parts := range texts {
			for range 10 {
				if got, want := m.Hash(secret, parts), Hash(secret, parts); got != want {
					t.Errorf("%q with the secret %q: %v, want %v", parts, secret, got, want)
				}
			}
		}
	}
	if n := rounds.Allocations(100, func() { m.Hash("s", texts[0]) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
