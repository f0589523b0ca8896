package key

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/limiter"
)

// An Input holds the texts of keys that come from an operator, for example, and not from
// a request. They are named by key, or by an origin such as header:X-Phone.
type Input struct {
	Texts map[string]string
	// IPv6Prefix is the number of bits of an IPv6 address that identify a client.
	IPv6Prefix int
}

// A Derivation describes how a key was derived from an Input.
type Derivation struct {
	// Names are the names in Given.Texts that were used, each once; empty for a key without
	// a text.
	Names []string
	// Derived is true if the key depends only on a part of a given text, such as the
	// country of a phone number: it also counts for many other texts.
	Derived bool

	unchanged []string // those of Names that are used unchanged
}

// Read reads s into v as Extract would from a request with only these keys, with the same
// errors for invalid texts. ErrMissing reports that neither s nor a key used instead of it
// is given. A key shared by requests without one is never given.
func (s *Spec) Read(g Input, v *Value) (Derivation, error) {
	v.Reset()
	var r Derivation
	err := s.read(g, v, &r)
	for _, name := range r.Names {
		r.Derived = r.Derived || !slices.Contains(r.unchanged, name)
	}
	return r, err
}

// add records that the text of from was used for s.
func (d *Derivation) add(from, s *Spec) {
	if !slices.Contains(d.Names, from.Name) {
		d.Names = append(d.Names, from.Name)
	}
	if from == s {
		d.unchanged = append(d.unchanged, s.Name)
	}
}

func (s *Spec) read(g Input, v *Value, r *Derivation) error {
	if s.Join != nil {
		for _, part := range s.Join {
			if err := part.read(g, v, r); err != nil {
				return err
			}
		}
		return nil
	}
	from := s
	text, ok := g.Texts[s.Name]
	if s.Of != nil && !ok {
		from = s.Of
		text, ok = g.Texts[from.Name]
	}
	var f result
	if !s.From.Source.IsConstant() {
		if !ok {
			return from.readFallback(g, v, r)
		}
		var err error
		if f, err = from.parseOwn(g, text); err != nil {
			return from.wrapError(err)
		}
	}
	if ok {
		r.add(from, s)
	}
	if from != s {
		f.text = s.Part.of(f.number)
	}
	c := v.add(s)
	c.result = f
	v.count(c)
	return nil
}

// readFallback reads the key that is used if s is missing or invalid.
func (s *Spec) readFallback(g Input, v *Value, r *Derivation) error {
	if s.OnMissing == Use {
		if err := s.Fallback.read(g, v, r); !errors.Is(err, ErrMissing) {
			return err
		}
	}
	if s.OnInvalid == Use {
		return s.InvalidFallback.read(g, v, r)
	}
	return ErrMissing
}

// parseOwn parses a text of s itself.
func (s *Spec) parseOwn(g Input, text string) (result, error) {
	switch {
	case s.Of != nil:
		part, err := s.Part.text(text)
		if err != nil {
			return result{}, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return result{text: part}, nil
	case s.From.Source.IsAddress():
		return g.parseClient(text)
	case text == "":
		return result{}, fmt.Errorf("%w: it is empty", ErrInvalid)
	}
	f := result{text: text}
	if err := s.checkAmbiguous(&s.From, &f); err != nil {
		return result{}, err
	}
	err := s.normalize(&f)
	if err == nil && s.SetHeader != "" && !httpguts.ValidHeaderFieldValue(f.text) {
		err = fmt.Errorf("%w: it cannot be sent in a header field", ErrInvalid)
	}
	if errors.Is(err, ErrMissing) {
		err = fmt.Errorf("%w: it is empty after normalization", ErrInvalid)
	}
	return f, err
}

// parseClient parses an address, or a network that counts as one client.
func (i Input) parseClient(text string) (result, error) {
	addr, err := netip.ParseAddr(text)
	if p, notOne := netip.ParsePrefix(text); notOne == nil && p.Bits() == ClientNetwork(p.Addr(), i.IPv6Prefix).Bits() {
		addr, err = p.Addr(), nil
	}
	if err != nil || addr.Zone() != "" {
		return result{}, fmt.Errorf("%w: not an address; write one such as 192.0.2.1 or 2001:db8::1", ErrInvalid)
	}
	p := ClientNetwork(addr, i.IPv6Prefix)
	return result{text: FormatClient(p), network: p}, nil
}

// ClientNetwork returns the network of a client by its address. An IPv6 address is counted by so many bits.
func ClientNetwork(addr netip.Addr, ipv6Prefix int) netip.Prefix {
	addr = limiter.ClientAddr(addr)
	bits := addr.BitLen()
	if addr.Is6() {
		bits = ipv6Prefix
	}
	p, _ := addr.Prefix(bits) // the configuration has 1 to 128 bits
	return p
}

// wrapError adds to an error the name of the key, and the syntax of phone numbers.
func (s *Spec) wrapError(err error) error {
	if s.Phone != nil && s.Phone.HasRegion() {
		return fmt.Errorf("%s: %w; a number without a country code is one of %s", s.Name, err, s.Phone.region)
	}
	return fmt.Errorf("%s: %w", s.Name, err)
}

// Names returns the names by which s, or a key that it consists of or that may replace it,
// can be given; for a joined key, those of its parts.
func (s *Spec) Names() (names []string) {
	for _, one := range s.all() {
		names = append(names, one.Name)
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

// CanonicalName returns the name of the key that text refers to: the canonical spelling
// of an origin, and any other text unchanged.
func CanonicalName(text string) string {
	if o, err := ParseOrigin(text); err == nil {
		return o.String()
	}
	return text
}

// A Request provides the data that keys are read from.
type Request interface {
	// Header returns all values of the field with this canonical name.
	Header(name string) []string
	// Query returns all values of the query parameter.
	Query(name string) []string
	// Confused reports whether the request has a header field or query parameter that some
	// server could read as o, although it has another name: see FoldHeader and Names. For a
	// form field, it reports whether the request has a body in which some server could find
	// the field, but that is not read as a form here.
	Confused(o Origin) bool
	// Param returns the value of the path's {parameter}, "" if it has none.
	Param(name string) string
	// Client returns the client's address; for IPv6, its network.
	Client() netip.Prefix
	// Descriptor returns the value of the entry of the descriptor that Envoy sends in place of a
	// request, "" if it has none.
	Descriptor(name string) string
	// Host returns the requested host in the normalized form that routes match.
	Host() string
	// Method returns the method.
	Method() string
	// Body returns the body, which is read once and forwarded unchanged. If it is too long
	// to be buffered, the error is ErrBodyTooLarge.
	Body() (Body, error)
}

// A Body is a complete request body. Extracting keys does not modify it.
type Body struct {
	Type  string // as the field Content-Type says, "" if there is none
	Bytes []byte
}
