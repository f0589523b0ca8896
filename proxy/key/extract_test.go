package key

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weir-proxy/weir/test/rounds"
)

// A request is what tests read keys from.
type request struct {
	header http.Header
	query  url.Values
	params map[string]string
	client netip.Prefix
}

func (r request) Header(name string) []string { return r.header[name] }
func (r request) Query(name string) []string  { return r.query[name] }
func (r request) Param(name string) string    { return r.params[name] }
func (r request) Client() netip.Prefix        { return r.client }
func (r request) Descriptor(string) string    { return "" }
func (r request) Host() string                { return "" }
func (r request) Method() string              { return "" }
func (r request) Body() (Body, error)         { return Body{}, nil }

// Confused looks through all names, as the proxy does.
func (r request) Confused(o Origin) bool {
	switch o.Source {
	case Header:
		for name := range r.header {
			if name != o.Name && FoldHeader(name) == FoldHeader(o.Name) {
				return true
			}
		}
	case Query:
		for name := range r.query {
			if len(NameSet{}.With(o.Name).Confused(nil, name)) > 0 {
				return true
			}
		}
	}
	return false
}

func of(origin string, steps ...Step) *Spec {
	o, err := ParseOrigin(origin)
	if err != nil {
		panic(err)
	}
	return &Spec{Name: origin, From: o, Normalize: steps}
}

func header(values ...string) request {
	return request{header: http.Header{"X-Phone": values}}
}

func TestParseOrigin(t *testing.T) {
	for in, want := range map[string]Origin{
		"header:x-phone": {Header, "X-Phone"},
		"query:user":     {Query, "user"},
		"path:id":        {Path, "id"},
		"client_ip":      {ClientIP, ""},
		"global":         {Global, ""},
		"cookie:sid":     {Cookie, "sid"},
		"form:phone":     {Form, "phone"},
		"json:/a~1b/0":   {JSON, "/a~1b/0"},
		"json:/":         {JSON, "/"},
		"jwt:https://x/": {JWT, "https://x/"},
		"host":           {Host, ""},
		"method":         {Method, ""},
	} {
		got, err := ParseOrigin(in)
		if err != nil || got != want {
			t.Errorf("ParseOrigin(%q) = %v, %v; want %v", in, got, err, want)
		}
		if again, err := ParseOrigin(got.String()); err != nil || again != got {
			t.Errorf("ParseOrigin(%q) = %v, %v; want %v again", got, again, err, got)
		}
	}
	for _, in := range []string{
		"", "header", "header:", "header:a b", "header:X-Phone:", "query:", "path", "client_ip:x", "global:", "cookies:x", "X-Phone",
		"cookie:", "cookie:a;b", "form:", "form:a\x00b", "json:", "json:phone", "json:/a~2", "json:/a~", "json:/a\n", "jwt:", "jwt", "host:x", "method:",
	} {
		if got, err := ParseOrigin(in); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), ";") {
			t.Errorf("ParseOrigin(%q) = %v, %v; want an ErrSpec that says what to write", in, got, err)
		}
	}
}

// A digit that some servers drop and others take for one of 0-9 is in no key,
// whatever the policies say and whatever step comes before.
func TestExtract_OtherDigitsAreRefused(t *testing.T) {
	phone, folded := phoneAt(t, "header:X-Phone"), phoneAt(t, "header:X-Phone")
	folded.Normalize = []Step{NFKC, E164}
	for _, s := range []*Spec{of("header:X-Phone", Digits), of("header:X-Phone", NFKC, Digits), of("header:X-Phone", Fold, Digits), phone, folded} {
		s.OnMissing, s.OnInvalid = Skip, Skip
		if got, err := extract(s, header("+8613800138000")); !strings.HasSuffix(got, "8613800138000") || err != nil {
			t.Errorf("%v: %q, %v", s.Normalize, got, err)
		}
		for r := rune(0x80); r <= unicode.MaxRune; r++ {
			if !unicode.IsNumber(r) {
				continue
			}
			if _, err := extract(s, header("+8613800138000"+string(r))); !errors.Is(err, ErrAmbiguous) {
				t.Fatalf("%v with %U = %v; want ErrAmbiguous", s.Normalize, r, err)
			}
		}
	}
}

func TestExtract_Sources(t *testing.T) {
	r := request{
		header: http.Header{"X-Phone": {"1"}},
		query:  url.Values{"user": {"2"}},
		params: map[string]string{"id": "3"},
		client: netip.MustParsePrefix("192.0.2.1/32"),
	}
	for _, c := range []struct{ origin, want string }{
		{"header:X-Phone", "1"}, {"query:user", "2"}, {"path:id", "3"}, {"client_ip", "192.0.2.1"}, {"global", ""},
	} {
		var v Value
		if err := of(c.origin).Extract(r, &v); err != nil || !slices.Equal(v.Parts, []string{c.origin, c.want}) {
			t.Errorf("Extract(%s) = %q, %v; want its name and %q", c.origin, v.Parts, err, c.want)
		}
	}
	r.client = netip.MustParsePrefix("2001:db8::/64")
	var v Value
	if err := of("client_ip").Extract(r, &v); err != nil || v.Parts[1] != "2001:db8::/64" {
		t.Errorf("Extract(client_ip) = %q, %v; want the network", v.Parts, err)
	}
}

func TestExtract_Missing(t *testing.T) {
	with := func(m Missing) *Spec {
		s := of("header:X-Phone", Digits)
		s.OnMissing, s.Fallback = m, of("global")
		return s
	}
	for name, r := range map[string]request{"none": {}, "empty": header(""), "nothing left of it": header("abc")} {
		var v Value
		for _, m := range []Missing{"", Reject} {
			if err := with(m).Extract(r, &v); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "header:X-Phone") {
				t.Errorf("%s, %q: %v; want ErrMissing that names the key", name, m, err)
			}
		}
		if err := with(Skip).Extract(r, &v); err != nil || !v.Skip {
			t.Errorf("%s, skip: %v, %v; want Skip", name, v, err)
		}
		if err := with(Shared).Extract(r, &v); err != nil || v.Skip || !slices.Equal(v.Parts, []string{"header:X-Phone"}) {
			t.Errorf("%s, shared: %v, %v; want the key's name alone", name, v, err)
		}
		if err := with(Use).Extract(r, &v); err != nil || !slices.Equal(v.Parts, []string{"global", ""}) {
			t.Errorf("%s, use: %v, %v; want the other key", name, v, err)
		}
	}
}

func TestExtract_TwiceIsAmbiguous(t *testing.T) {
	var v Value
	err := of("header:X-Phone").Extract(header("13800138000", "13800138001"), &v)
	if !errors.Is(err, ErrAmbiguous) || strings.Contains(err.Error(), "138") {
		t.Errorf("Extract = %v; want ErrAmbiguous without the values", err)
	}
	r := request{query: url.Values{"user": {"a", "a"}}}
	if err := of("query:user").Extract(r, &v); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("Extract = %v; want ErrAmbiguous", err)
	}
}

func TestExtract_Join(t *testing.T) {
	skip := of("query:user")
	skip.OnMissing = Skip
	r := header("1")
	var v Value
	if err := (&Spec{Name: "pair", Join: []*Spec{of("global"), of("header:X-Phone")}}).Extract(r, &v); err != nil ||
		!slices.Equal(v.Parts, []string{"global", "", "header:X-Phone", "1"}) {
		t.Errorf("join = %q, %v", v.Parts, err)
	}
	if err := (&Spec{Join: []*Spec{of("header:X-Phone"), skip}}).Extract(r, &v); err != nil || !v.Skip {
		t.Errorf("join with a part that is skipped = %v, %v; want Skip", v, err)
	}
	if err := (&Spec{Join: []*Spec{skip, of("path:id")}}).Extract(request{query: url.Values{"user": {"a"}}}, &v); !errors.Is(err, ErrMissing) {
		t.Errorf("join without a part = %v; want ErrMissing", err)
	}
	// What was read before does not stay.
	if err := of("global").Extract(r, &v); err != nil || v.Skip || len(v.Parts) != 2 {
		t.Errorf("a Value used again = %v, %v", v, err)
	}
}

func FuzzExtract(f *testing.F) {
	f.Add("+86 138", "x")
	f.Fuzz(func(t *testing.T, a, b string) {
		spec := of("header:X-Phone", Trim, Lower, Digits)
		var one, two Value
		if spec.Extract(header(a), &one) != nil || spec.Extract(header(one.Parts[1]), &two) != nil {
			return
		}
		if !slices.Equal(one.Parts, two.Parts) {
			t.Fatalf("normalizing %q twice gives %q, then %q", a, one.Parts, two.Parts)
		}
	})
}

// Each source has a name that is parsed back. What is in a body may be confused with the
// query, and a form with it too; what is in the body takes long to read.
func TestSource_Traits(t *testing.T) {
	for s := Header; s < numSources; s++ {
		if s.String() == "" || sourceOf(s.String()) != s {
			t.Errorf("source %d has the name %q", s, s)
		}
		want := map[Source]Origin{Query: {Form, "/x/y"}, Form: {Query, "/x/y"}, JSON: {Query, "x"}}[s]
		if other, ok := (Origin{s, "/x/y"}).Confused(); ok != (want.Source != 0) || ok && other != want {
			t.Errorf("%s is confused with %s; want %s", s, other, want)
		}
		if s.IsBody() && !s.IsCostly() || s.IsLogged() && !s.IsNamed() || s.IsSpelled() && !s.IsNamed() || s.IsAddress() && s.IsNamed() {
			t.Errorf("the traits of %s contradict each other", s)
		}
	}
	var none Source
	if none.String() != "" || sourceOf("") != none || none.IsNamed() || none.IsConstant() {
		t.Error("no source has traits")
	}
}

func TestOrigin_Fields(t *testing.T) {
	for origin, want := range map[string][]string{
		"header:x-phone": {"X-Phone"}, "cookie:sid": {"Cookie"}, "jwt:sub": {"Authorization"}, "json:/a": {"Content-Type", "Content-Encoding"},
		"form:a": {"Content-Type", "Content-Encoding"}, "query:a": nil, "path:a": nil, "client_ip": nil, "host": nil, "method": nil, "global": nil,
	} {
		o, err := ParseOrigin(origin)
		if err != nil || !slices.Equal(o.Fields(), want) {
			t.Errorf("%s: %q, %v; want %q", origin, o.Fields(), err, want)
		}
	}
	if HeaderField("X-A").String() != "header:X-A" || PathParameter("id").String() != "path:id" {
		t.Errorf("%s, %s", HeaderField("X-A"), PathParameter("id"))
	}
}

// What the package comment says is safe for concurrent use is used by many at
// once, and the race detector looks on.
func TestSharedThings_ConcurrentUse(t *testing.T) {
	tokens := opened(t, TokenConfig{Secret: []byte(secret)})
	bearer := bears(signed(t, signer{jwt.SigningMethodHS256, []byte(secret)}, nil))
	phone := guarded(t)
	country := &Spec{Name: "country", Of: phone, Part: Part{Kind: Country}}
	list := mustList(t, phone, "13800138000")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			var v Value
			for i := range 200 {
				v.Reset()
				number := fmt.Sprintf("138%08d", (i*7+g)%50)
				m := sendsJSON(`{"phone":"` + number + `"}`)
				if err := phone.Extract(m, &v); err != nil || v.Text() != "+86"+number {
					t.Errorf("%s = %q, %v", number, v.Text(), err)
				}
				if got := list.Has(&v); got != (number == "13800138000") {
					t.Errorf("the list has %s: %v", number, got)
				}
				if Hash("new", v.Parts) == Hash("old", v.Parts) {
					t.Error("two secrets make one key")
				}
				if err := country.Extract(m, &v); err != nil || v.Text() != "CN" {
					t.Errorf("country = %q, %v", v.Text(), err)
				}
				v.Reset()
				if err := claimOf(tokens, "sub").Extract(bearer, &v); err != nil || v.Text() != "alice" {
					t.Errorf("claim = %q, %v", v.Text(), err)
				}
			}
		})
	}
	wg.Wait()
}

func TestExtract_LeavesTheBodyAlone(t *testing.T) {
	for origin, m := range map[string]*sentRequest{
		"json:/user/phone": sendsJSON(string(document())),
		"form:phone":       sendsParts(part("phone", "1")),
		"form:a":           sendsForm("a=1&b=%41"),
	} {
		before := bytes.Clone(m.body.Bytes)
		if _, err := extract(of(origin), m); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(m.body.Bytes, before) {
			t.Errorf("%s changed the body", origin)
		}
	}
}

// A key of a header costs no allocation once a Value has been used.
func TestExtract_HeaderDoesNotAllocate(t *testing.T) {
	s := of("header:X-Phone", Trim, Digits)
	var v Value
	var r Request = header("13800138000")
	if n := rounds.Allocations(100, func() {
		v.Reset()
		if err := s.Extract(r, &v); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Extract allocates %v times; want none", n)
	}
}

func TestPhone_KnownNumberDoesNotAllocate(t *testing.T) {
	p := mustPhone(t, "CN")
	if n := rounds.Allocations(100, func() {
		if _, err := p.Parse("+8613800138000"); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Parse allocates %v times; want none", n)
	}
}
