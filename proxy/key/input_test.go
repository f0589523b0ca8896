package key

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// number is a key that holds phone numbers, from a header field.
func number(t testing.TB, region string, types ...LineType) *Spec {
	t.Helper()
	phone := mustPhone(t, region, types...)
	s := of("header:X-Phone", E164)
	s.Name, s.Phone = "phone", phone
	return s
}

// What is given reads as a request that carries it does: the same key, or an error of
// the same kind.
func FuzzGiven_ReadsAsARequestDoes(f *testing.F) {
	for _, text := range []string{
		"+8613800138000", "138 0013 8000", "008613800138000", "(+86) 138-0013-8000", "12345", "+86 138 0013 8000 ext. 5", "１３８００１３８０００",
		"alice", "Alice ", " alice", "a\tb", "ü", "\xff", "4\xb2", "", "a\x00", "203.0.113.7", "null",
	} {
		f.Add(text)
	}
	specs := []*Spec{
		number(f, "CN"), number(f, ""), number(f, "CN", Mobile),
		of("header:X-User"), of("header:X-User", Trim, Lower), of("header:X-User", Digits), of("query:user"), of("query:user", Trim),
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range specs {
			sent := request{
				header: map[string][]string{"X-Phone": {text}, "X-User": {text}}, query: map[string][]string{"user": {text}},
			}
			var asked, given Value
			wanted := s.Extract(sent, &asked)
			r, err := s.Read(Input{Texts: map[string]string{s.Name: text}}, &given)
			if errors.Is(wanted, ErrMissing) {
				wanted = ErrInvalid // of an operator who has given it
			}
			if errors.Is(err, ErrInvalid) != errors.Is(wanted, ErrInvalid) || errors.Is(err, ErrAmbiguous) != errors.Is(wanted, ErrAmbiguous) {
				t.Fatalf("%s %v of %q: %v given, %v of a request", s.Name, s.Normalize, text, err, wanted)
			}
			if err == nil && (!slices.Equal(asked.Parts, given.Parts) || asked.Text() != given.Text() || !slices.Equal(r.Names, []string{s.Name})) {
				t.Fatalf("%s of %q: %q given, %q of a request, %+v", s.Name, text, given.Parts, asked.Parts, r)
			}
		}
	})
}

func TestGiven_Addresses(t *testing.T) {
	s := of("client_ip")
	for text, want := range map[string]string{
		"203.0.113.7": "203.0.113.7", "::ffff:203.0.113.7": "203.0.113.7", "2001:db8::1": "2001:db8::/64",
		"2001:DB8:0::ffff": "2001:db8::/64", "2001:db8::/64": "2001:db8::/64", "2001:db8::1/64": "2001:db8::/64", "203.0.113.7/32": "203.0.113.7",
		"2001:db8::/48": "", "203.0.113.0/24": "", "203.0.113.7/64": "", "fe80::1%eth0": "", "": "", "localhost": "",
	} {
		var v Value
		_, err := s.Read(Input{Texts: map[string]string{"client_ip": text}, IPv6Prefix: 64}, &v)
		if want == "" {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %q, %v; want ErrInvalid", text, v.Parts, err)
			}
			continue
		}
		addr, prefixErr := netip.ParsePrefix(want)
		if prefixErr != nil {
			addr = netip.PrefixFrom(netip.MustParseAddr(want), 32)
		}
		var asked Value
		if e := s.Extract(request{client: addr}, &asked); e != nil || err != nil || !slices.Equal(v.Parts, asked.Parts) {
			t.Errorf("%q: %q, %v; want %q as of a request, %v", text, v.Parts, err, asked.Parts, e)
		}
	}
}

// Keys that are made of others.
func TestGiven_OtherKeys(t *testing.T) {
	phone, ip, user := number(t, "CN"), of("client_ip"), of("header:X-User")
	country := &Spec{Name: "country", Of: phone, Part: Part{Kind: Country}}
	area := &Spec{Name: "range", Of: phone, Part: Part{Kind: Prefix, Drop: 4}}
	pair := &Spec{Name: "pair", Join: []*Spec{ip, phone}}
	fallback := of("header:X-Token")
	fallback.OnMissing, fallback.Fallback = Use, user
	strict := of("header:X-Strict")
	strict.OnInvalid, strict.InvalidFallback = Use, user
	shared := of("header:X-Shared")
	shared.OnMissing = Shared
	everybody := of("global")
	for _, c := range []struct {
		spec  *Spec
		given string // NAME=TEXT, separated by blanks
		want  string // the parts
		names string
		err   error
	}{
		{country, "country=CN", "country CN", "country", nil},
		{country, "phone=13800138000", "country CN", "phone derived", nil},
		{country, "country=China", "", "", ErrInvalid},
		{country, "phone=12", "", "", ErrInvalid},
		{country, "client_ip=192.0.2.1", "", "", ErrMissing},
		{area, "range=+861380013", "range +861380013", "range", nil},
		{area, "phone=13800138000", "range +861380013", "phone derived", nil},
		{pair, "client_ip=192.0.2.1 phone=13800138000", "client_ip 192.0.2.1 phone +8613800138000", "client_ip phone", nil},
		{pair, "phone=13800138000", "", "", ErrMissing},
		{fallback, "header:X-Token=t", "header:X-Token t", "header:X-Token", nil},
		{fallback, "header:X-User=u", "header:X-User u", "header:X-User", nil},
		{fallback, "header:X-User=u header:X-Token=t", "header:X-Token t", "header:X-Token", nil},
		{strict, "header:X-User=u", "header:X-User u", "header:X-User", nil},
		{strict, "phone=13800138000", "", "", ErrMissing},
		{shared, "phone=13800138000", "", "", ErrMissing},
		{&Spec{Name: "both", Join: []*Spec{phone, country}}, "phone=13800138000", "phone +8613800138000 country CN", "phone", nil},
		{&Spec{Name: "some", Join: []*Spec{ip, country}}, "phone=13800138000 client_ip=192.0.2.1", "client_ip 192.0.2.1 country CN", "client_ip phone derived", nil},
		{everybody, "global=", "global ", "global", nil},
		{everybody, "phone=13800138000", "global ", "", nil},
	} {
		g := Input{Texts: map[string]string{}, IPv6Prefix: 64}
		for one := range strings.FieldsSeq(c.given) {
			name, text, _ := strings.Cut(one, "=")
			g.Texts[name] = text
		}
		var v Value
		r, err := c.spec.Read(g, &v)
		names := strings.Join(r.Names, " ")
		if r.Derived {
			names += " derived"
		}
		if !errors.Is(err, c.err) || err == nil && (strings.Join(v.Parts, " ") != c.want || names != c.names) {
			t.Errorf("%s by %s: %q from %q, %v; want %q from %q, %v", c.spec.Name, c.given, v.Parts, names, err, c.want, c.names, c.err)
		}
	}
	if got := strings.Join(pair.Names(), " "); got != "pair client_ip phone" {
		t.Errorf("names of a pair: %s", got)
	}
}

func TestGiven_SaysWhatIsWrong(t *testing.T) {
	var v Value
	_, err := number(t, "CN").Read(Input{Texts: map[string]string{"phone": "12345"}}, &v)
	if got := err.Error(); !strings.Contains(got, "phone: ") || !strings.Contains(got, "not a valid phone number") || !strings.Contains(got, "CN") || strings.Contains(got, "12345") {
		t.Errorf("%s; want the key, what is wrong, the country, and not the value", got)
	}
}

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{"header:x-phone": "header:X-Phone", "phone": "phone", "client_ip": "client_ip", "query:a": "query:a", "": ""} {
		if got := CanonicalName(in); got != want {
			t.Errorf("Canonical(%q) = %q; want %q", in, got, want)
		}
	}
}

func TestDisplay(t *testing.T) {
	d := Display{Address: func(text string) string { return strings.ReplaceAll(text, "192.0.2.1", "192.0.2.0/24") }}
	phone, ip := number(t, "CN"), of("client_ip")
	phone.Sensitive = true
	plain := number(t, "CN")
	mail, host := of("header:X-Mail"), of("host")
	mail.Sensitive, host.Sensitive = true, true
	for _, c := range []struct {
		spec  *Spec
		given map[string]string
		want  string
	}{
		{phone, map[string]string{"phone": "13800138000"}, "phone=+86138****8000"},
		{&Spec{Name: "country", Of: phone, Part: Part{Kind: Country}}, map[string]string{"phone": "13800138000"}, "country=CN"},
		{&Spec{Name: "range", Of: phone, Part: Part{Kind: Prefix, Drop: 4}}, map[string]string{"phone": "13800138000"}, "range=+861380013"},
		{&Spec{Name: "near", Of: phone, Part: Part{Kind: Prefix, Drop: 2}}, map[string]string{"phone": "13800138000"}, "near=+861380013**"},
		{&Spec{Name: "near", Of: phone, Part: Part{Kind: Prefix, Drop: 1}}, map[string]string{"phone": "13800138000"}, "near=+861380013***"},
		{&Spec{Name: "dial", Of: phone, Part: Part{Kind: DialCode}}, map[string]string{"phone": "13800138000"}, "dial=+86"},
		{ip, map[string]string{"client_ip": "2001:db8::1"}, "client_ip=2001:db8::/64"},
		{plain, map[string]string{"phone": "13800138000"}, "phone=+8613800138000"},
		{&Spec{Name: "near", Of: plain, Part: Part{Kind: Prefix, Drop: 2}}, map[string]string{"phone": "13800138000"}, "near=+86138001380"},
		{of("header:X-User"), map[string]string{"header:X-User": "alice@example.com"}, "header:X-User=alice@example.com"},
		{mail, map[string]string{"header:X-Mail": "alice@example.com"}, "header:X-Mail=alic****.com"},
		{host, map[string]string{"host": "api.example.com"}, "host=api****com"},
		{of("host"), map[string]string{"host": "api.example.com"}, "host=api.example.com"},
		{&Spec{Name: "pair", Join: []*Spec{ip, phone}}, map[string]string{"client_ip": "192.0.2.1", "phone": "13800138000"}, "client_ip=192.0.2.0/24 phone=+86138****8000"},
		{of("global"), map[string]string{"global": ""}, "global"},
	} {
		var v Value
		if _, err := c.spec.Read(Input{Texts: c.given, IPv6Prefix: 64}, &v); err != nil {
			t.Fatal(err)
		}
		if got := d.Value(&v); got != c.want {
			t.Errorf("%s; want %s", got, c.want)
		}
		var texts []string
		for _, one := range v.components {
			texts = append(texts, one.text)
		}
		if got := d.Texts(c.spec.Shapes(), texts); got != c.want {
			t.Errorf("of texts %s; want %s", got, c.want)
		}
	}
	if got := d.Texts(phone.Shapes(), nil); got != "phone" {
		t.Errorf("of no texts %s; want the name alone", got)
	}
	none := Display{Address: func(string) string { return "" }}
	var v Value
	if _, err := ip.Read(Input{Texts: map[string]string{"client_ip": "192.0.2.1"}}, &v); err != nil || none.Value(&v) != "client_ip" {
		t.Errorf("%s, %v; want the name alone", none.Value(&v), err)
	}
}
