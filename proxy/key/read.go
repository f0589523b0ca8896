package key

import (
	"fmt"
	"net/netip"
)

// read reads the only text at o into f, which is zero. It stays empty if there is none.
func (o Origin) read(r Request, v *Value, tokens *Tokens, f *result) (err error) {
	switch o.Source {
	case Header, Query:
		f.text, err = o.readField(r)
	case Path:
		f.text = r.Param(o.Name)
	case Cookie:
		f.text, err = cookie(r.Header("Cookie"), o.Name)
	case ClientIP:
		f.network = r.Client()
		f.text = v.formatAddress(f.network)
	case JWT:
		*f, err = tokens.claim(r, v, o.Name)
	case Descriptor:
		if d, ok := r.(Described); ok {
			f.text = d.Descriptor(o.Name)
		}
	case JSON, Form, Host, Method:
		*f, err = o.readMessage(r, v)
	}
	return err
}

// readField reads the only header field or parameter with this name.
func (o Origin) readField(r Request) (string, error) {
	if r.Confused(o) {
		return "", fmt.Errorf("%w: some servers read another name as this one", ErrAmbiguous)
	}
	if o.Source.IsField() {
		return single(r.Header(o.Name))
	}
	return single(r.Query(o.Name))
}

// readMessage reads origins that require a Message.
func (o Origin) readMessage(r Request, v *Value) (f result, err error) {
	m, err := message(r)
	if err != nil {
		return result{}, err
	}
	switch o.Source {
	case Host:
		f.text = m.Host()
	case Method:
		f.text = m.Method()
	case Form:
		return form(r, m, o.Name)
	case JSON:
		body, err := decodedBody(r, m)
		if err != nil || len(body.Bytes) == 0 {
			return result{}, err
		}
		doc, err := body.json()
		if err != nil {
			return result{}, err
		}
		return canonicalJSON(v.lookup(doc, o.Name))
	}
	return f, err
}

// formatAddress formats an address, without the prefix length if it is a single host. It
// caches the last one, because requests of a client often follow each other.
func (v *Value) formatAddress(p netip.Prefix) string {
	switch {
	case !p.IsValid():
		return ""
	case p == v.last.network:
		return v.last.text
	}
	v.last.network, v.last.text = p, p.String()
	if p.IsSingleIP() {
		v.last.text = p.Addr().String()
	}
	return v.last.text
}
