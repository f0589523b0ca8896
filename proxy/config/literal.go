package config

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// oneText reports whether a value of the key is one text, and says so otherwise.
func (l *loader) oneText(pointer any, spec *key.Spec) bool {
	return spec != nil && !l.refuseFirst([]finding{
		{spec.Join != nil, pointer, "the key " + spec.Name + " is joined of several, which no single value can name", "use a key that is not joined"},
		{spec.From.Source.IsConstant(), pointer, "the key is global: it has no values", "use a key that tells clients apart"},
	})
}

// literal returns the key of a text that stands in the configuration, exactly as it is made of requests that carry this
// text. The text must hold a value.
func (l *loader) literal(pointer any, spec *key.Spec, text string) (k limiter.Key, ok bool) {
	var v key.Value
	_, problems := key.ParseList(spec, slices.Values([]string{text}))
	instead := "write it as clients send it"
	switch {
	case len(problems) > 0 && !spec.From.Source.IsAddress():
		instead = insteadOf(problems)
	case spec.Of != nil:
		ok = part(spec, text)
		v.Parts, instead = []string{spec.Name, text}, "write for example CN, +86 or +86138"
	case spec.From.Source.IsAddress():
		var client netip.Prefix
		client, ok = l.client(text)
		ok = ok && spec.Extract(literalRequest{client: client}, &v) == nil
		instead = "write for example 192.0.2.1 or 2001:db8::1"
	default:
		from := key.PathParameter("x") // any that shows the text to be read
		if spec.From.Source.IsField() {
			from = key.HeaderField("X") // where less is taken
		}
		plain := key.Spec{Name: spec.Name, From: from, Normalize: spec.Normalize, Phone: spec.Phone}
		ok = plain.Extract(literalRequest{text: text}, &v) == nil
	}
	if !ok {
		l.Wrong(pointer, form.Quote(text)+" is not a value of the key "+spec.Name, instead)
		return k, false
	}
	return l.made.Privacy.Hash(v.Parts), true
}

// part reports whether text is what a part of a phone number is written as.
func part(spec *key.Spec, text string) bool {
	_, problems := key.ParseList(spec, key.Lines(text))
	return len(problems) == 0 && (spec.Part.Kind == key.Country || strings.HasPrefix(text, "+") && strings.Trim(text[1:], "0123456789") == "")
}

// client reads an address, or a network that is one client.
func (l *loader) client(text string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p, p == p.Masked() && (p.IsSingleIP() || p.Addr().Is6() && p.Bits() == l.made.ClientIP.IPv6Prefix)
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, false
	}
	addr = limiter.ClientAddr(addr)
	bits := addr.BitLen()
	if addr.Is6() {
		bits = l.made.ClientIP.IPv6Prefix
	}
	p, err := addr.Prefix(bits)
	return p, err == nil
}

// A literalRequest is a request that carries one text wherever a key is read from.
type literalRequest struct {
	text   string
	client netip.Prefix
}

func (r literalRequest) Header(string) []string   { return []string{r.text} }
func (r literalRequest) Query(string) []string    { return []string{r.text} }
func (r literalRequest) Confused(key.Origin) bool { return false }
func (r literalRequest) Param(string) string      { return r.text }
func (r literalRequest) Client() netip.Prefix     { return r.client }
