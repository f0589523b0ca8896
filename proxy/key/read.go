package key

import (
	"net/netip"
	"strings"
)

// read returns the one text at o, "" if there is none.
func (o Origin) read(r Request, v *Value, tokens *Tokens) (f found, err error) {
	switch o.Source {
	case Header:
		f.text, err = one(r.Header(o.Name))
	case Query:
		f.text, err = one(r.Query(o.Name))
	case Path:
		f.text = r.Param(o.Name)
	case Cookie:
		f.text, err = cookie(r.Header("Cookie"), o.Name)
	case ClientIP:
		f.network = r.Client()
		f.text = client(f.network)
	case JWT:
		return tokens.claim(r, v, o.Name)
	case JSON, Form, Host, Method:
		return o.open(r, v)
	}
	return f, err
}

// open reads what only a Message has.
func (o Origin) open(r Request, v *Value) (f found, err error) {
	m, err := message(r)
	if err != nil {
		return found{}, err
	}
	switch o.Source {
	case Host:
		f.text = m.Host()
	case Method:
		f.text = m.Method()
	case Form:
		f.text, err = form(r, m, o.Name)
	case JSON:
		body, err := whole(r, m)
		if err != nil || len(body.Bytes) == 0 {
			return found{}, err
		}
		if err := body.json(); err != nil {
			return found{}, err
		}
		return v.lookup(body.Bytes, o.Name)
	}
	return f, err
}

// client writes an address without the length of its network when that is a
// single host.
func client(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// Disguises reports whether an upstream could take a field or parameter called name
// for the one called want, though that is another name.
func Disguises(name, want string) bool { return disguises(name, want) }

// disguises reports whether an upstream could take name for want although they
// differ: some do not tell upper from lower case, some drop blanks around a
// name, and some read "phone[]" as "phone" or stop at a NUL.
func disguises(name, want string) bool {
	if name == want {
		return false
	}
	if i := strings.IndexAny(name, "[\x00"); i >= 0 {
		name = name[:i]
	}
	return strings.EqualFold(strings.TrimSpace(name), want)
}
