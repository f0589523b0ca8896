package key

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/rounds"
)

func part(name, text string) string {
	return fmt.Sprintf("Content-Disposition: form-data; name=%q\n\n%s", name, text)
}

func TestExtract_Form(t *testing.T) {
	const urlencoded = "application/x-www-form-urlencoded"
	for name, c := range map[string]struct {
		m    *sentRequest
		want string
		err  error
	}{
		"one field":               {sendsForm("a=2&phone=1"), "1", nil},
		"escaped":                 {sendsForm("%70hone=%2B1+2"), "+1 2", nil},
		"charset":                 {sends(urlencoded+"; charset=UTF-8", "phone=1"), "1", nil},
		"another query":           {sendsForm("phone=1").asks("x=2"), "1", nil},
		"none":                    {sendsForm("a=2"), "", ErrMissing},
		"no body":                 {sendsForm(""), "", ErrMissing},
		"nothing at all":          {sends("", ""), "", ErrMissing},
		"empty":                   {sendsForm("phone="), "", ErrMissing},
		"twice":                   {sendsForm("phone=1&phone=2"), "", ErrAmbiguous},
		"twice the same":          {sendsForm("phone=1&phone=1"), "", ErrAmbiguous},
		"twice, one escaped":      {sendsForm("phone=1&%70hone=2"), "", ErrAmbiguous},
		"twice, one empty":        {sendsForm("phone=1&phone="), "", ErrAmbiguous},
		"as a list":               {sendsForm("phone=1&phone[]=2"), "", ErrAmbiguous},
		"as a list alone":         {sendsForm("phone%5B0%5D=2"), "", ErrAmbiguous},
		"upper case":              {sendsForm("phone=1&Phone=2"), "", ErrAmbiguous},
		"a blank before":          {sendsForm("phone=1&+phone=2"), "", ErrAmbiguous},
		"a NUL":                   {sendsForm("phone=1&phone%00x=2"), "", ErrAmbiguous},
		"in the query too":        {sendsForm("phone=1").asks("phone=1"), "", ErrAmbiguous},
		"in the query alone":      {sendsForm("a=1").asks("phone=1"), "", ErrAmbiguous},
		"in the query, no body":   {sends("", "").asks("phone=1"), "", ErrAmbiguous},
		"in the query, as a list": {sendsForm("a=1").asks("phone[]=1"), "", ErrAmbiguous},
		"in the query, with JSON": {sendsJSON("{}").asks("phone=1"), "", ErrAmbiguous},
		"another in the query":    {sendsForm("phone=1").asks("a=1"), "1", nil},
		"semicolon":               {sendsForm("phone=1;phone=2"), "", ErrAmbiguous},
		"bad escape":              {sendsForm("phone=1&x=%zz"), "", ErrAmbiguous},
		"no UTF-8":                {sendsForm("phone=%ff"), "", ErrAmbiguous},
		"as text":                 {sends("text/plain", "phone=1"), "", ErrInvalid},
		"as JSON":                 {sendsJSON("phone=1"), "", ErrInvalid},
		"without a type":          {sends("", "phone=1"), "", ErrAmbiguous},
		"with a broken type":      {sends("application/x-www-form-urlencoded; charset", "phone=1"), "", ErrAmbiguous},
		"with two charsets":       {sends(urlencoded+"; charset=utf-8; charset=utf-16", "phone=1"), "", ErrAmbiguous},
		"Latin-1":                 {sends(urlencoded+"; charset=ISO-8859-1", "phone=1&a=%7e"), "1", nil},
		"Latin-1, beyond ASCII":   {sends(urlencoded+"; charset=iso-8859-1", "phone=1&a=\u00e9"), "", ErrAmbiguous},
		"Latin-1, an escape":      {sends(urlencoded+"; charset=iso-8859-1", "phone=1&a=%E9"), "", ErrAmbiguous},
		"a line break after it":   {sendsForm("phone=1&a=2\r\n"), "1", nil},
		"a line break within":     {sendsForm("a=2&phone=1\r\n"), "", ErrAmbiguous},
		"a line break alone":      {sendsForm("a=2&phone=\r\n"), "", ErrAmbiguous},
		"UTF-16":                  {sends(urlencoded+"; charset=utf-16", "phone=1"), "", ErrAmbiguous},
		"two types":               {sendsForm("phone=1").with("Content-Type", urlencoded, "application/json"), "", ErrAmbiguous},
		"compressed":              {sendsForm("phone=1").with("Content-Encoding", "gzip"), "", ErrAmbiguous},
		"not compressed":          {sendsForm("phone=1").with("Content-Encoding", "identity"), "1", nil},
		"parts":                   {sendsParts(part("a", "2"), part("phone", "1")), "1", nil},
		"parts, plain text":       {sendsParts("Content-Type: text/plain; charset=utf-8\n" + part("phone", "1")), "1", nil},
		"parts, a file beside":    {sendsParts("Content-Disposition: form-data; name=\"f\"; filename=\"phone\"\nContent-Type: image/png\n\n--x", part("phone", "1")), "1", nil},
		"parts, 8bit":             {sendsParts("Content-Transfer-Encoding: 8bit\n" + part("phone", "1")), "1", nil},
		"parts, 7bit, binary":     {sendsParts("content-transfer-encoding: BINARY\n"+part("a", "\xff"), "Content-Transfer-Encoding: 7Bit\n"+part("phone", "1")), "1", nil},
		"parts, base64 beside":    {sendsParts("Content-Transfer-Encoding: base64\n"+part("a", "MQ=="), part("phone", "1")), "", ErrAmbiguous},
		"parts, coded twice":      {sendsParts("Content-Transfer-Encoding: 8bit\nContent-Transfer-Encoding: 8bit\n" + part("phone", "1")), "", ErrAmbiguous},
		"parts, no quotes":        {sendsParts("Content-Disposition: form-data; name=a; filename=b.png; filename*=utf-8''b.png\n\n2", "Content-Disposition: form-data; name=phone\n\n1"), "1", nil},
		"parts, single quotes":    {sendsParts("Content-Disposition: form-data; name='phone'\n\n1"), "", ErrAmbiguous},
		"parts, half a quote":     {sendsParts("Content-Disposition: form-data; name=phone\"\n\n1"), "", ErrAmbiguous},
		"parts, blank in a name":  {sendsParts("Content-Disposition: form-data; name=phone x\n\n1"), "", ErrAmbiguous},
		"parts, filename* alone":  {sendsParts("Content-Disposition: form-data; name=phone; filename*=utf-8''b.png\n\n1"), "", ErrAmbiguous},
		"parts, filename* odd":    {sendsParts("Content-Disposition: form-data; name=a; filename=b; filename*=utf-16''b\n\n1", part("phone", "1")), "", ErrAmbiguous},
		"parts, a semicolon":      {sends("multipart/form-data; boundary=B;", "--B\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--B--\r\n"), "1", nil},
		"parts, two semicolons":   {sends("multipart/form-data; boundary=B;;", "--B--\r\n"), "", ErrAmbiguous},
		"parts, a plus":           {sends("multipart/form-data; boundary=B+", "--B+--\r\n"), "", ErrMissing},
		"parts, Latin-1":          {sendsParts("Content-Type: text/plain; charset=ISO-8859-1\n" + part("phone", "1")), "1", nil},
		"parts, Latin-1 beyond":   {sendsParts("Content-Type: text/plain; charset=ISO-8859-1\n" + part("phone", "\u00e9")), "", ErrAmbiguous},
		"parts, none":             {sendsParts(part("a", "1")), "", ErrMissing},
		"parts, twice":            {sendsParts(part("phone", "1"), part("phone", "2")), "", ErrAmbiguous},
		"parts, upper case":       {sendsParts(part("phone", "1"), part("PHONE", "2")), "", ErrAmbiguous},
		"parts, a list":           {sendsParts(part("phone[]", "1")), "", ErrAmbiguous},
		"parts, in the query":     {sendsParts(part("phone", "1")).asks("phone=2"), "", ErrAmbiguous},
		"parts, a file":           {sendsParts("Content-Disposition: form-data; name=\"phone\"; filename=\"x\"\n\n1"), "", ErrAmbiguous},
		"parts, base64":           {sendsParts("Content-Transfer-Encoding: base64\n" + part("phone", "MQ==")), "", ErrAmbiguous},
		"parts, quoted-printable": {sendsParts("Content-Transfer-Encoding: quoted-printable\n" + part("phone", "=31")), "", ErrAmbiguous},
		"parts, UTF-16":           {sendsParts("Content-Type: text/plain; charset=utf-16\n" + part("phone", "1")), "", ErrAmbiguous},
		"parts, JSON":             {sendsParts("Content-Type: application/json\n" + part("phone", "1")), "", ErrAmbiguous},
		"parts, no UTF-8":         {sendsParts(part("phone", "\xff")), "", ErrAmbiguous},
		"parts, two names":        {sendsParts("Content-Disposition: form-data; name=\"phone\"; name=\"x\"\n\n1"), "", ErrAmbiguous},
		"parts, two dispositions": {sendsParts("Content-Disposition: form-data; name=\"x\"\n" + part("phone", "1")), "", ErrAmbiguous},
		"parts, no disposition":   {sendsParts("X: y\n\n1"), "", ErrAmbiguous},
		"parts, not form-data":    {sendsParts("Content-Disposition: attachment; name=\"phone\"\n\n1"), "", ErrAmbiguous},
		"parts, RFC 2231":         {sendsParts("Content-Disposition: form-data; name*=utf-8''phone\n\n1"), "", ErrAmbiguous},
		"parts, RFC 2231 beside":  {sendsParts(part("phone", "1"), "Content-Disposition: form-data; name*0=\"pho\"; name*1=\"ne\"\n\n2"), "", ErrAmbiguous},
		"parts, RFC 2047":         {sendsParts(part("phone", "1"), part("=?utf-8?B?cGhvbmU=?=", "2")), "", ErrAmbiguous},
		"parts, RFC 2047 alone":   {sendsParts(part("=?utf-8?Q?phone?=", "2")), "", ErrAmbiguous},
		"parts, cut off":          {sends("multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n"), "", ErrAmbiguous},
		"parts, no end":           {sends("multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--B\r\n"), "", ErrAmbiguous},
		"parts, text before":      {sends("multipart/form-data; boundary=B", "x\r\n--B\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--B--\r\n"), "", ErrAmbiguous},
		"parts, bare line feeds":  {sends("multipart/form-data; boundary=B", "--B\nContent-Disposition: form-data; name=\"phone\"\n\n1\n--B--\n"), "", ErrAmbiguous},
		"parts, text after":       {sends("multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--B--\r\nx"), "", ErrAmbiguous},
		"parts, another boundary": {sends("multipart/form-data; boundary=C", "--B\r\n\r\n--B--\r\n"), "", ErrAmbiguous},
		"parts, no boundary":      {sends("multipart/form-data", "--B\r\n\r\n--B--\r\n"), "", ErrAmbiguous},
		"parts, two boundaries":   {sends("multipart/form-data; boundary=B; boundary=C", "--B--\r\n"), "", ErrAmbiguous},
		"parts, an empty form":    {sends("multipart/form-data; boundary=B", "--B--\r\n"), "", ErrMissing},
		"parts, 70 characters":    {sends("multipart/form-data; boundary="+strings.Repeat("B", 70), "--"+strings.Repeat("B", 70)+"--\r\n"), "", ErrMissing},
		"parts, 71 characters":    {sends("multipart/form-data; boundary="+strings.Repeat("B", 71), "--"+strings.Repeat("B", 71)+"--\r\n"), "", ErrAmbiguous},
	} {
		got, err := extract(of("form:phone"), c.m)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, err, c.want, c.err)
		}
		if err != nil && !strings.Contains(err.Error(), "form:phone") {
			t.Errorf("%s: %v; want the key named", name, err)
		}
	}
}

// Old clients end a form with a line break, which most servers read as the end of the last
// value. It is one key for all of them only where it is normalized.
func TestExtract_FormWithALineBreakAtItsEnd(t *testing.T) {
	for _, s := range []*Spec{of("form:phone", Trim), of("form:phone", Digits), phoneAt(t, "form:phone")} {
		for _, body := range []string{"phone=13800138000\r\n", "a=2&phone=13800138000\r\n", "phone=13800138000&a=2\r\n"} {
			want := "13800138000"
			if s.Phone != nil {
				want = "+8613800138000"
			}
			if got, err := extract(s, sendsForm(body)); err != nil || got != want {
				t.Errorf("%q normalized by %v = %q, %v; want %s", body, s.Normalize, got, err, want)
			}
		}
		if got, err := extract(s, sendsForm("phone=\r\n")); !errors.Is(err, ErrMissing) {
			t.Errorf("a line break alone, normalized by %v = %q, %v; want ErrMissing", s.Normalize, got, err)
		}
	}
	for _, s := range []*Spec{of("form:phone"), of("form:phone", Lower)} {
		if got, err := extract(s, sendsForm("phone=1\r\n")); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("normalized by %v = %q, %v; want ErrAmbiguous", s.Normalize, got, err)
		}
	}
}

func TestExtract_JSONTypes(t *testing.T) {
	const doc = `{"phone":"1"}`
	for kind, want := range map[string]error{
		"application/json": nil, "application/json; charset=utf-8": nil, "Application/JSON;charset=\"UTF-8\"": nil, "application/vnd.api+json": nil, "application/json; charset=utf8": nil,
		"text/json": nil, "text/json; charset=utf-8": nil, "application/json; charset=us-ascii": nil, "application/json; charset=ISO-8859-1": nil,
		"": ErrAmbiguous, "text/plain": ErrInvalid, "application/x-www-form-urlencoded": ErrInvalid, "text/x-json": ErrInvalid, "application/jsonp": ErrInvalid,
		"application/json; charset=utf-16": ErrAmbiguous, "application/json; charset=utf-7": ErrAmbiguous, "application/json, text/plain": ErrAmbiguous, "x": ErrInvalid,
	} {
		if _, err := extract(of("json:/phone"), sends(kind, doc)); !errors.Is(err, want) {
			t.Errorf("%q: %v; want %v", kind, err, want)
		}
	}
	for _, charset := range []string{"us-ascii", "iso-8859-1"} {
		if _, err := extract(of("json:/phone"), sends("application/json; charset="+charset, "{\"phone\":\"1\",\"a\":\"\u00e9\"}")); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%s with bytes beyond ASCII = %v; want ErrAmbiguous", charset, err)
		}
	}
	if _, err := extract(of("json:/phone"), sendsJSON(doc).with("Content-Type", "application/json", "text/plain")); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("two Content-Types = %v; want ErrAmbiguous", err)
	}
	for _, encoding := range []string{"gzip", "br", "GZIP", "identity, gzip"} {
		if _, err := extract(of("json:/phone"), sendsJSON(doc).with("Content-Encoding", encoding)); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("Content-Encoding %s = %v; want ErrAmbiguous", encoding, err)
		}
	}
}

func TestExtract_Cookie(t *testing.T) {
	for _, c := range []struct {
		fields string // | parts fields
		want   string
		err    error
	}{
		{"sid=1", "1", nil},
		{"a=2; sid=1; b=3", "1", nil},
		{"a=2;sid=1;b=3", "1", nil},
		{"sid=1=2", "1=2", nil},
		{"sid=s%3Aabc", "s:abc", nil},
		{"sid=%61bc", "abc", nil},
		{"sid=a%2Bb", "a+b", nil},
		{"sid=s%3Aid.signature", "s:id.signature", nil},
		{"sid=a+b", "", ErrAmbiguous}, // Rack and gin read a blank
		{"sid=1+", "", ErrAmbiguous},
		{"sid=j:1", "", ErrAmbiguous}, // cookie-parser reads JSON
		{"sid=j%3A%221%22", "", ErrAmbiguous},
		{"sid=%6a:[1]", "", ErrAmbiguous},
		{"xsid=1; sid2=2; .sid.=3; si.d=4", "", ErrMissing},
		{"", "", ErrMissing},
		{"sid", "", ErrMissing},
		{"sid=", "", ErrMissing},
		{`a="x,y"; sid=1; b="z"`, "1", nil},
		{`a={"b":"c,d"}; sid=1`, "1", nil},
		{"a=2|sid=1", "", ErrAmbiguous},
		{"sid = 1", "", ErrAmbiguous},
		{"sid= 1", "", ErrAmbiguous},
		{"sid=1 ; a=2", "", ErrAmbiguous},
		{"\tsid=1", "", ErrAmbiguous},
		{"=sid=1", "", ErrAmbiguous},
		{"sid=1; sid=2", "", ErrAmbiguous},
		{"sid=1; sid=1", "", ErrAmbiguous},
		{"sid=1|sid=2", "", ErrAmbiguous},
		{"sid=1;sid", "", ErrAmbiguous},
		{"sid=1; SID=2", "", ErrAmbiguous},
		{"Sid=2", "", ErrAmbiguous},
		{"sid=1; sid[]=2", "", ErrAmbiguous},
		{"sid=1; s%69d=2", "", ErrAmbiguous},
		{"sid=1; +sid=2", "", ErrAmbiguous},
		{"sid=1; sid%00=2", "", ErrAmbiguous},
		{"a=2, sid=1", "", ErrAmbiguous},
		{"sid=1; a=2, sid=3", "", ErrAmbiguous},
		{"sid=1, a=2", "", ErrAmbiguous},
		{`a="x; sid=2"; sid=1`, "", ErrAmbiguous},
		{`a="x; sid=2; b=y"`, "", ErrAmbiguous},
		{`a="x\"; sid=2; b=y"`, "", ErrAmbiguous},
		{`sid="1"`, "", ErrAmbiguous},
		{`sid="\061"`, "", ErrAmbiguous},
		{`sid=a\b`, "", ErrAmbiguous},
		{"sid=a b", "", ErrAmbiguous},
		{"sid=a\tb", "", ErrAmbiguous},
		{"sid=%ff", "", ErrAmbiguous},
		{"sid=\u00e9", "", ErrAmbiguous},
		{"sid=50%", "", ErrAmbiguous},
		{"sid=%zz%61", "", ErrAmbiguous},
		{"sid=a%20b", "", ErrAmbiguous},
		{"sid=%22a%22", "", ErrAmbiguous},
		{"sid=a%0Ab", "", ErrAmbiguous},
	} {
		r := request{header: http.Header{"Cookie": strings.Split(c.fields, "|")}}
		if got, err := extract(of("cookie:sid"), r); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("Cookie: %s = %q, %v; want %q, %v", c.fields, got, err, c.want, c.err)
		}
	}
	if _, err := extract(of("cookie:sid"), request{}); !errors.Is(err, ErrMissing) {
		t.Errorf("without cookies = %v; want ErrMissing", err)
	}
}

func FuzzForm(f *testing.F) {
	f.Add("application/x-www-form-urlencoded", "phone=1&a=2")
	f.Add("multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--B--\r\n")
	f.Fuzz(func(t *testing.T, kind, body string) {
		m := sends(kind, body)
		got, err := extract(of("form:phone"), m)
		if err != nil {
			return
		}
		// What net/http's own reading finds first must be what was found.
		r, _ := http.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		if value := r.PostFormValue("phone"); value != got {
			t.Fatalf("%q: %q is %q; net/http reads %q", kind, body, got, value)
		}
	})
}

// Digits drop what is no digit, but only where all servers see the same bytes there:
// of a form that is not UTF-8 some keep the escapes, and others read Latin-1, in which
// \xb2 is a superscript two.
func TestExtract_BytesThatAreNoText(t *testing.T) {
	for _, escaped := range []string{"%FF", "%b2", "%80", "%c0%b0", "%ed%a0%80", "%a3%b0"} {
		raw, _ := url.PathUnescape(escaped)
		for _, steps := range [][]Step{nil, {Digits}, {Trim, Digits}, {Trim}, {Lower}} {
			for from, r := range map[string]Request{
				"form:phone":   sendsForm("phone=138" + escaped + "001"),
				"query:phone":  sends("", "").asks("phone=138" + escaped + "001"),
				"cookie:phone": sends("", "").with("Cookie", "phone=138"+escaped+"001"),
				"path:phone":   request{params: map[string]string{"phone": "138" + raw + "001"}},
				"header:Phone": sends("", "").with("Phone", "138"+raw+"001"),
			} {
				if got, err := extract(of(from, steps...), r); !errors.Is(err, ErrAmbiguous) {
					t.Errorf("%s with %s, %v = %q, %v; want ErrAmbiguous", from, escaped, steps, got, err)
				}
			}
			if got, err := extract(of("form:phone", steps...), sendsParts(part("phone", "138"+raw+"001"))); !errors.Is(err, ErrAmbiguous) {
				t.Errorf("a part with %s, %v = %q, %v; want ErrAmbiguous", escaped, steps, got, err)
			}
		}
	}
}

// What is a letter in UTF-8 may be a superscript two in Latin-1, as which headers are
// read by many, and forms by Tomcat.
func TestExtract_NumbersInLatin1(t *testing.T) {
	for _, odd := range []string{"\u0432", "\u0139", "\uff0b", "\u00b2"} {
		if got, err := extract(of("header:Phone", Digits), sends("", "").with("Phone", "138"+odd+"001")); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%+q in a header = %q, %v; want ErrAmbiguous", odd, got, err)
		}
		if got, err := extract(of("form:phone", Digits), sendsForm("phone=138"+url.QueryEscape(odd)+"001")); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%+q in a form = %q, %v; want ErrAmbiguous", odd, got, err)
		}
		if got, err := extract(of("form:phone", Digits), sendsParts(part("phone", "138"+odd+"001"))); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%+q in a part = %q, %v; want ErrAmbiguous", odd, got, err)
		}
	}
	for _, plain := range []string{"\u2010", "\u00a0", "\u200b", "\u0431"} {
		if got, err := extract(of("header:Phone", Digits), sends("", "").with("Phone", "138"+plain+"001")); err != nil || got != "138001" {
			t.Errorf("%+q in a header = %q, %v; want it dropped", plain, got, err)
		}
	}
	if got, err := extract(of("query:phone", Digits), sends("", "").asks("phone=%EF%BC%8B86138")); err != nil || got != "86138" {
		t.Errorf("a full-width plus in a query = %q, %v; want it dropped", got, err)
	}
}

// A formBeside is a request whose form nobody has looked into.
type formBeside struct{ *sentRequest }

func (f formBeside) Confused(o Origin) bool { return o.Source == Form || f.sentRequest.Confused(o) }

func TestExtract_QueryBesideAForm(t *testing.T) {
	r := formBeside{sendsForm("phone=2").asks("phone=1")}
	if _, err := extract(of("query:phone"), r); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("beside a form = %v; want ErrAmbiguous", err)
	}
	r.asks("")
	missing := of("query:phone")
	missing.OnMissing = Skip
	if _, err := extract(missing, r); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("missing beside a form = %v; want ErrAmbiguous", err)
	}
}

// What is in two places is compared if the key says so, as what it is: null is not the word.
func TestExtract_TwoPlacesAreCompared(t *testing.T) {
	both := func(query, form string) Request { return formBeside{sendsForm(form).asks(query)} }
	for _, c := range []struct {
		origin, other string
		r             Request
		want          error
	}{
		{"query:phone", "form:phone", both("phone=1", "phone=1"), nil}, {"query:phone", "form:phone", both("phone=1", "a=1"), nil},
		{"query:phone", "form:phone", both("phone=1", ""), nil}, {"query:phone", "form:phone", both("phone=1", "phone=2"), ErrMismatch},
		{"query:phone", "form:phone", both("phone=1", "phone[]=2"), ErrAmbiguous},
		{"json:/user", "query:user", sendsJSON(`{"user":"a"}`), nil}, {"json:/user", "query:user", sendsJSON(`{"user":"a"}`).asks("user=a"), nil},
		{"json:/user", "query:user", sendsJSON(`{"user":"a"}`).asks("user=b"), ErrMismatch},
		{"json:/a", "header:X-A", sendsJSON(`{"a":null}`).with("X-A", "null"), ErrMismatch}, {"json:/a", "header:X-A", sendsJSON(`{"a":42}`).with("X-A", "42"), nil},
	} {
		s := of(c.origin)
		s.Equal = []Origin{of(c.other).From}
		if _, err := extract(s, c.r); !errors.Is(err, c.want) {
			t.Errorf("%s and %s of %+v = %v; want %v", c.origin, c.other, c.r, err, c.want)
		}
	}
}

var (
	anyName     = regexp.MustCompile(`(?i)name\*?[0-9]*\*?=(?:utf-8'')?"?((?:[^";\\\n]|\\.)*)`)
	anyBoundary = regexp.MustCompile(`(?i)boundary="?([^";,]*)`)
)

// looseForm is how forgiving servers read a form in parts, all at once: any line
// that begins with a boundary of the Content-Type begins a part, whatever ends the
// lines and whatever stood before or after, and any name counts.
func looseForm(kind, body string) (values []string) {
	for _, match := range anyBoundary.FindAllStringSubmatch(kind, -1) {
		lines := strings.Split(strings.ReplaceAll(strings.ReplaceAll(body, "\r\n", "\n"), "\r", "\n"), "\n")
		var part []string
		in := false
		end := func() {
			header, text, _ := strings.Cut(strings.Join(part, "\n"), "\n\n")
			for _, name := range anyName.FindAllStringSubmatch(header, -1) {
				if strings.EqualFold(strings.ReplaceAll(name[1], `\`, ""), "phone") {
					values = append(values, text)
				}
			}
		}
		for _, line := range lines {
			if strings.HasPrefix(strings.TrimLeft(line, " "), "--"+match[1]) {
				if in {
					end()
				}
				part, in = nil, true
				continue
			}
			part = append(part, line)
		}
		if in {
			end()
		}
	}
	return values
}

// A form that is taken has the one value that a forgiving server finds as well,
// however its writer bends the grammar.
func TestMultipart_ForgivingReadersFindNoOther(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	kinds := []string{
		"multipart/form-data; boundary=B", "multipart/form-data; boundary=B", "multipart/form-data; boundary=B", `multipart/form-data; boundary="B"`, "multipart/form-data;boundary=B", "multipart/form-data; charset=utf-8; boundary=B",
		"multipart/form-data; boundary=C; boundary=B", "multipart/form-data; xboundary=C; boundary=B", "multipart/form-data; boundary=B; x=\"boundary=C\"", "multipart/form-data; boundary=B,boundary=C", "multipart/mixed; boundary=B", "multipart/form-data; boundary=B;", "multipart/form-data; boundary=B; ;boundary=C",
	}
	heads := []string{
		`name="phone"`, `name="phone"`, `name="a"`, `name="a"`, `name=phone`, `name="a"; name="phone"`, `name="phone"; name="a"`, `name*=utf-8''phone`, `name="a"; name*=utf-8''phone`, `name="ph\one"`, `name="Phone"`, `name="phone[]"`,
		`name="a"; filename="x"`, `name="phone"; filename="x"`, `name="a"; filename="name=\"phone\""`, `NAME="phone"`, `name="a";filename=x; name="phone"`, `name="a"; filename="; name="phone"`,
	}
	ends := []string{"\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", " \r\n"}
	marks := []string{"--B", "--B", "--B", "--B", "--B", "--C", "--BB", " --B", "--B--", ""}
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	most := func(from []string) string { // the plain one, mostly
		if random.IntN(8) > 0 {
			return from[0]
		}
		return pick(from)
	}
	taken, forms := 0, rounds.Of(75_000)
	for range forms {
		var b strings.Builder
		for i := range random.IntN(4) {
			b.WriteString(most(marks) + most(ends) + "Content-Disposition: form-data; " + pick(heads) + most(ends))
			if random.IntN(20) == 0 {
				b.WriteString("Content-Transfer-Encoding: " + pick([]string{"base64", "8bit", "binary"}) + most(ends))
			}
			b.WriteString(most(ends) + string(rune('1'+i)) + most(ends))
		}
		b.WriteString(most(marks) + pick([]string{"--", "--", "--", ""}) + pick([]string{"", "\r\n", "\r\n", "x", "\r\n\r\n"}))
		kind, body := pick(kinds), b.String()
		got, err := extract(of("form:phone"), sends(kind, body))
		if err != nil {
			continue
		}
		taken++
		if all := looseForm(kind, body); !slices.Equal(all, []string{got}) {
			t.Fatalf("%s\n%q\nis %q; others find %q", kind, body, got, all)
		}
	}
	if taken < forms/150 {
		t.Errorf("only %d forms were taken", taken)
	}
}

// What common clients write is taken.
func TestMultipart_CommonClients(t *testing.T) {
	for client, c := range map[string]struct{ kind, body string }{
		"curl":     {"multipart/form-data; boundary=------------------------d74496d66958873e", "--------------------------d74496d66958873e\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--------------------------d74496d66958873e--\r\n"},
		"browser":  {"multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW", "------WebKitFormBoundary7MA4YWxkTrZu0gW\r\nContent-Disposition: form-data; name=\"f\"; filename=\"\u00e9 (1).png\"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n\x1a\n\x00\r\n------WebKitFormBoundary7MA4YWxkTrZu0gW\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n------WebKitFormBoundary7MA4YWxkTrZu0gW--\r\n"},
		"OkHttp":   {"multipart/form-data; boundary=3cf2b0a6-8a3c-4d5b", "--3cf2b0a6-8a3c-4d5b\r\nContent-Disposition: form-data; name=\"phone\"\r\nContent-Length: 1\r\n\r\n1\r\n--3cf2b0a6-8a3c-4d5b--\r\n"},
		"Go":       {"multipart/form-data; boundary=0123456789abcdef", "--0123456789abcdef\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--0123456789abcdef--\r\n"},
		"requests": {"multipart/form-data; boundary=0123456789abcdef", "--0123456789abcdef\r\nContent-Disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--0123456789abcdef\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\na\nb\r\n--0123456789abcdef--\r\n"},
		"Spring":   {"multipart/form-data;charset=UTF-8;boundary=aBc_-9", "--aBc_-9\r\nContent-Disposition: form-data; name=\"phone\"\r\nContent-Type: text/plain;charset=UTF-8\r\nContent-Length: 1\r\n\r\n1\r\n--aBc_-9--\r\n"},
		// MultipartFormDataContent of dotnet/runtime, src/libraries/System.Net.Http: tokens have no quotes.
		".NET": {`multipart/form-data; boundary="7e3b9a52-5d0f-4f3c-8a55-6a2c6f1d9b10"`, "--7e3b9a52-5d0f-4f3c-8a55-6a2c6f1d9b10\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=phone\r\n\r\n1\r\n--7e3b9a52-5d0f-4f3c-8a55-6a2c6f1d9b10\r\nContent-Disposition: form-data; name=photo; filename=a.png; filename*=utf-8''a.png\r\n\r\n\x89PNG\r\n--7e3b9a52-5d0f-4f3c-8a55-6a2c6f1d9b10--\r\n"},
		// FormBodyPartBuilder of apache/httpcomponents-client, httpmime 4.5, in strict mode.
		"Apache HttpClient 4": {"multipart/form-data; boundary=Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb", "--Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb\r\nContent-Disposition: form-data; name=\"phone\"\r\nContent-Type: text/plain; charset=ISO-8859-1\r\nContent-Transfer-Encoding: 8bit\r\n\r\n1\r\n--Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb\r\nContent-Disposition: form-data; name=\"photo\"; filename=\"a.png\"\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary\r\n\r\n\x89PNG\r\n--Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb--\r\n"},
		// The same of httpclient5, HttpStrictMultipart.
		"Apache HttpClient 5": {"multipart/form-data; boundary=Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb; charset=UTF-8", "--Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb\r\nContent-Disposition: form-data; name=\"phone\"\r\nContent-Type: text/plain; charset=ISO-8859-1\r\n\r\n1\r\n--Jh-u_4eXx0kqXUu0sqJ5oTqk8bAd2mVb--\r\n"},
		// MultipartRequest of dart-lang/http, pkgs/http: boundaries may have a plus, and fields beyond ASCII say that they are binary.
		"Dart": {"multipart/form-data; boundary=dart-http-boundary-K+w_.1nRz0Qy8GmVb3kXo5uT7sJd2fHc9LpEaWiNqYrZvMgBtC4", "--dart-http-boundary-K+w_.1nRz0Qy8GmVb3kXo5uT7sJd2fHc9LpEaWiNqYrZvMgBtC4\r\ncontent-disposition: form-data; name=\"name\"\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-transfer-encoding: binary\r\n\r\nJ\u00fcrgen\r\n--dart-http-boundary-K+w_.1nRz0Qy8GmVb3kXo5uT7sJd2fHc9LpEaWiNqYrZvMgBtC4\r\ncontent-disposition: form-data; name=\"phone\"\r\n\r\n1\r\n--dart-http-boundary-K+w_.1nRz0Qy8GmVb3kXo5uT7sJd2fHc9LpEaWiNqYrZvMgBtC4--\r\n"},
	} {
		if got, err := extract(of("form:phone"), sends(c.kind, c.body)); err != nil || got != "1" {
			t.Errorf("%s: %q, %v; want it taken", client, got, err)
		}
	}
	wrong := "--B\r\nContent-Disposition: form-data; name=\"phone\"\r\nContent-Length: 2\r\n\r\n1\r\n--B--\r\n"
	if _, err := extract(of("form:phone"), sends("multipart/form-data; boundary=B", wrong)); err == nil {
		t.Error("a part that is shorter than it says was taken")
	}
}
