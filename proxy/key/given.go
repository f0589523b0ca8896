package key

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// A Given holds keys that are given outside of a request, by an operator for example: texts
// by the name of a key, or by an origin such as header:X-Phone.
type Given struct {
	Texts map[string]string
	// IPv6Prefix is the number of bits of an IPv6 address that identify a client.
	IPv6Prefix int
}

// A Reading describes how a key was derived from a Given.
type Reading struct {
	// Names are the names in Given.Texts that were used, each once; empty for a key without
	// a text.
	Names []string
	// Derived is true if the key depends only on a part of a given text, such as the
	// country of a phone number: it also counts for many other texts.
	Derived bool

	whole []string // those of Names that are used unchanged
}

// Read reads s into v as Extract would from a request with only these keys, with the same
// errors for invalid texts. ErrMissing reports that neither s nor a key used instead of it
// is given. A key shared by requests without one is never given.
func (s *Spec) Read(g Given, v *Value) (Reading, error) {
	v.Reset()
	var r Reading
	err := s.read(g, v, &r)
	for _, name := range r.Names {
		r.Derived = r.Derived || !slices.Contains(r.whole, name)
	}
	return r, err
}

// note records that the text of that name was used.
func (r *Reading) note(name string) {
	if !slices.Contains(r.Names, name) {
		r.Names = append(r.Names, name)
	}
}

func (s *Spec) read(g Given, v *Value, r *Reading) error {
	if s.Join != nil {
		for _, part := range s.Join {
			if err := part.read(g, v, r); err != nil {
				return err
			}
		}
		return nil
	}
	if s.From.Source == Global {
		if _, ok := g.Texts[s.Name]; ok {
			r.note(s.Name)
			r.whole = append(r.whole, s.Name)
		}
		v.add(s, found{})
		return nil
	}
	if text, ok := g.Texts[s.Name]; ok {
		f, err := s.own(g, text)
		if err != nil {
			return s.wrong(err)
		}
		r.note(s.Name)
		r.whole = append(r.whole, s.Name)
		v.add(s, f)
		return nil
	}
	whole := s
	if s.Of != nil {
		whole = s.Of
		if text, ok := g.Texts[whole.Name]; ok {
			f, err := whole.own(g, text)
			if err != nil {
				return whole.wrong(err)
			}
			r.note(whole.Name)
			v.add(s, found{text: s.Part.of(f.number), number: f.number})
			return nil
		}
	}
	return whole.instead(g, v, r)
}

// instead reads the key that is used if whole is missing or invalid.
func (whole *Spec) instead(g Given, v *Value, r *Reading) error {
	if whole.OnMissing == Use {
		if err := whole.Fallback.read(g, v, r); !errors.Is(err, ErrMissing) {
			return err
		}
	}
	if whole.OnInvalid == Use {
		return whole.InvalidFallback.read(g, v, r)
	}
	return ErrMissing
}

// own reads s from a text of its own.
func (s *Spec) own(g Given, text string) (found, error) {
	switch {
	case s.Of != nil:
		part, err := s.Part.text(text)
		if err != nil {
			return found{}, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return found{text: part}, nil
	case s.From.Source == ClientIP:
		return g.client(text)
	case text == "":
		return found{}, fmt.Errorf("%w: it is empty", ErrInvalid)
	}
	f := found{text: text}
	if err := s.checkAmbiguous(s.From, f); err != nil {
		return found{}, err
	}
	f, err := s.normalize(f)
	if err == nil && s.SetHeader != "" && !httpguts.ValidHeaderFieldValue(f.text) {
		err = fmt.Errorf("%w: it cannot be sent in a header field", ErrInvalid)
	}
	if errors.Is(err, ErrMissing) {
		err = fmt.Errorf("%w: it is empty after normalization", ErrInvalid)
	}
	return f, err
}

// client parses an address, or a network that counts as one client.
func (g Given) client(text string) (found, error) {
	bad := fmt.Errorf("%w: not an address; write one such as 192.0.2.1 or 2001:db8::1", ErrInvalid)
	network, isNetwork := strings.CutSuffix(text, fmt.Sprintf("/%d", g.IPv6Prefix))
	addr, err := netip.ParseAddr(network)
	if err != nil || addr.Zone() != "" || isNetwork && !addr.Is6() {
		return found{}, bad
	}
	addr = addr.Unmap()
	bits := addr.BitLen()
	if addr.Is6() {
		bits = g.IPv6Prefix
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return found{}, bad
	}
	return found{text: new(Value).client(p), network: p}, nil
}

// wrong adds to an error the name of the key, and the syntax of phone numbers.
func (s *Spec) wrong(err error) error {
	if s.Phone != nil && s.Phone.region != noRegion {
		return fmt.Errorf("%s: %w; a number without a country code is one of %s", s.Name, err, s.Phone.region)
	}
	return fmt.Errorf("%s: %w", s.Name, err)
}

// Names returns the names by which s, or a key that it consists of or that may replace it,
// can be given; for a joined key, those of its parts.
func (s *Spec) Names() []string {
	names := []string{s.Name}
	for _, other := range s.others() {
		names = append(names, other.Names()...)
	}
	return names
}

// Replacements returns the keys that may be used instead of s, and instead of those.
func (s *Spec) Replacements() []*Spec {
	var all []*Spec
	for _, other := range []*Spec{s.Fallback, s.InvalidFallback} {
		if other != nil {
			all = append(append(all, other), other.Replacements()...)
		}
	}
	return all
}

// Canonical returns the name of the key that text refers to: the canonical spelling of an
// origin, and any other text unchanged.
func Canonical(text string) string {
	if o, err := ParseOrigin(text); err == nil {
		return o.String()
	}
	return text
}
