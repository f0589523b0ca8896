package key

import (
	"strings"
	"testing"
	"unicode/utf8"
)

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

func TestValue_Shown(t *testing.T) {
	phone := guarded(t)
	phone.Sensitive = true
	ip := of("client_ip")
	mail := of("header:X-Mail")
	mail.Sensitive = true
	m := sendsJSON(`{"phone":"13800138000"}`).with("X-Mail", "alice@example.com")
	m.client = client4("2001:db8::/64").client
	for want, s := range map[string]*Spec{
		"phone=+86138****8000":                         phone,
		"client_ip=2001:db8::/64":                      ip,
		"header:X-Mail=alic****.com":                   mail,
		"global":                                       of("global"),
		"client_ip=2001:db8::/64 phone=+86138****8000": {Name: "pair", Join: []*Spec{ip, phone}},
		"country=CN":                                   {Name: "country", Of: phone, Part: Part{Kind: Country}},
		"dial=+86":                                     {Name: "dial", Of: phone, Part: Part{Kind: DialCode}},
		"range=+861380013":                             {Name: "range", Of: phone, Part: Part{Prefix, 4}},
		"near=+861380013***":                           {Name: "near", Of: phone, Part: Part{Prefix, 1}},
	} {
		var v Value
		if err := s.Extract(m, &v); err != nil || v.Shown() != want {
			t.Errorf("%s = %q, %v; want %q", s.Name, v.Shown(), err, want)
		}
	}
	phone.OnMissing, phone.Sensitive = Shared, false
	var v Value
	if err := phone.Extract(sendsJSON(`{}`), &v); err != nil || v.Shown() != "phone" {
		t.Errorf("shared = %q, %v; want the name alone", v.Shown(), err)
	}
	if err := phone.Extract(sendsJSON(`{"phone":"13800138000"}`), &v); err != nil || v.Shown() != "phone" {
		t.Errorf("before Reset = %q; want what was remembered", v.Shown())
	}
	v.Reset()
	if err := phone.Extract(sendsJSON(`{"phone":"13800138000"}`), &v); err != nil || v.Shown() != "phone=+8613800138000" {
		t.Errorf("not sensitive = %q, %v; want it plain", v.Shown(), err)
	}
}
