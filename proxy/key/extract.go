package key

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/net/http/httpguts"
)

// Extract reads the key from r into v, and reuses v.Parts. All calls between two calls of
// v.Reset must be for the same request. Errors wrap one of this package's errors and name
// the key, never its value; v is then undefined.
func (s *Spec) Extract(r Request, v *Value) error {
	v.Parts, v.Skip, v.components = v.Parts[:0], false, v.components[:0]
	return s.extract(r, v)
}

func (s *Spec) extract(r Request, v *Value) error {
	if s.Join != nil {
		for _, part := range s.Join {
			if err := part.extract(r, v); err != nil || v.Skip {
				return err
			}
		}
		return nil
	}
	whole := s
	if s.Of != nil {
		whole = s.Of
	}
	c := v.add(s)
	err := whole.find(r, v, &c.result)
	v.setField(whole.SetHeader, c.text)
	if err != nil {
		v.components = v.components[:len(v.components)-1]
		v.setField(s.SetHeader, "")
		return whole.onFailure(r, v, err)
	}
	if s.Of != nil {
		c.text = s.Part.of(c.number)
		v.setField(s.SetHeader, c.text)
	}
	v.count(c)
	return nil
}

// onFailure applies OnMissing and OnInvalid.
func (s *Spec) onFailure(r Request, v *Value, err error) error {
	policy, instead, name := Reject, (*Spec)(nil), s.Name
	switch {
	case errors.Is(err, ErrMissing):
		policy, instead = s.OnMissing, s.Fallback
	case errors.Is(err, ErrInvalid):
		policy, instead, name = s.OnInvalid, s.InvalidFallback, s.Name+"\x00invalid"
	}
	switch policy {
	case Skip:
		v.Skip = true
		return nil
	case Shared:
		v.Parts = append(v.Parts, name)
		v.add(s)
		return nil
	case Use:
		return instead.extract(r, v)
	}
	return fmt.Errorf("%s: %w", s.From, err)
}

// find reads s, which has an origin, from the request into f, which is zero. It caches expensive
// results in v. After an error f is zero.
func (s *Spec) find(r Request, v *Value, f *result) error {
	expensive := s.Phone != nil || len(s.Equal) > 0 || s.From.Source.IsCostly()
	if expensive {
		for _, m := range v.cache {
			if m.spec == s {
				*f = m.result
				return m.err
			}
		}
	}
	err := s.readAt(&s.From, r, v, f)
	if len(s.Equal) > 0 {
		err = s.mustEqual(r, v, f, err)
	}
	if err == nil && s.SetHeader != "" && !httpguts.ValidHeaderFieldValue(f.text) {
		err = fmt.Errorf("%w: it cannot be sent in a header field", ErrInvalid)
	}
	if err != nil {
		*f = result{}
	}
	if expensive {
		v.cache = append(v.cache, cacheEntry{s, *f, err})
	}
	return err
}

// readAt reads and normalizes the value at one origin into f, which is zero. After an error f is not
// valid. A result is large, so it is not copied.
func (s *Spec) readAt(o *Origin, r Request, v *Value, f *result) error {
	if err := s.checkOneSource(o, r); err != nil {
		return err
	}
	if err := o.read(r, v, s.Tokens, f); err != nil || o.Source.IsConstant() {
		return err
	}
	if err := s.checkAmbiguous(o, f); err != nil {
		return err
	}
	return s.normalize(f)
}

// normalize normalizes f. An empty result is ErrMissing.
func (s *Spec) normalize(f *result) error {
	if slices.Contains(s.Normalize, Digits) || s.Phone != nil { // before a step makes others of them
		if err := checkDigits(f.text); err != nil {
			return err
		}
	}
	for _, step := range s.Normalize {
		f.text = step.Apply(f.text)
	}
	if f.text == "" {
		return ErrMissing
	}
	if s.Phone == nil {
		return nil
	}
	number, err := s.Phone.Parse(f.text)
	*f = result{text: number.E164, number: number}
	return err
}

// mustEqual compares f with the values at s.Equal. It returns err, the error of the key's
// own origin, or ErrMismatch. If the key is missing at its own origin and such a request
// would be accepted, it must be missing at the other origins too, because the upstream
// could use them.
func (s *Spec) mustEqual(r Request, v *Value, f *result, err error) error {
	missing, invalid := errors.Is(err, ErrMissing), errors.Is(err, ErrInvalid)
	policy := s.OnMissing
	if invalid {
		policy = s.OnInvalid
	}
	if err != nil && (!missing && !invalid || policy == Reject || policy == "") {
		return err
	}
	for i := range s.Equal {
		var other result
		o := &s.Equal[i]
		otherErr := s.readAt(o, r, v, &other)
		switch {
		case errors.Is(otherErr, ErrMissing):
			continue
		case otherErr != nil && !errors.Is(otherErr, ErrInvalid):
			return fmt.Errorf("at %s: %w", o, otherErr)
		case otherErr != nil, err != nil, other.text != f.text, other.kind != f.kind:
			return fmt.Errorf("%w, at %s", ErrMismatch, o)
		}
	}
	return err
}

// single returns the only value, "" if there is none.
func single(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", ErrAmbiguous
}

// Errors about keys. Errors that wrap these name the key, never its value. OnMissing and
// OnInvalid of a Spec apply only to ErrMissing and ErrInvalid.
var (
	// ErrSpec reports an invalid description of a key in the configuration.
	ErrSpec = errors.New("not a key")
	// ErrMissing reports a request without a required key.
	ErrMissing = errors.New("key missing")
	// ErrInvalid reports an invalid key: not a phone number, not JSON, a token without a
	// valid signature.
	ErrInvalid = errors.New("key not valid")
	// ErrAmbiguous reports a key that servers could read differently: it is repeated, or in
	// a form that servers interpret in different ways.
	ErrAmbiguous = errors.New("key is ambiguous")
	// ErrMismatch reports that two parts of a request that must have the same key have
	// different ones.
	ErrMismatch = errors.New("key differs from its other copy")
	// ErrBodyTooLarge reports a body that is too long to be buffered for a key.
	// Message.Body returns it.
	ErrBodyTooLarge = errors.New("body too large for its key to be read")
	// ErrNoVerificationKeys reports that there are no keys to verify tokens, because their
	// source has not replied yet. It is not an error of the client.
	ErrNoVerificationKeys = errors.New("no keys to verify tokens with")
)

// read reads the only text at o into f, which is zero. It stays empty if there is none.
func (o *Origin) read(r Request, v *Value, tokens *Tokens, f *result) (err error) {
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
func (o *Origin) readField(r Request) (string, error) {
	if r.Confused(*o) {
		return "", fmt.Errorf("%w: some servers read another name as this one", ErrAmbiguous)
	}
	if o.Source.IsField() {
		return single(r.Header(o.Name))
	}
	return single(r.Query(o.Name))
}

// readMessage reads origins that require a Message.
func (o *Origin) readMessage(r Request, v *Value) (result, error) {
	m, ok := r.(Message)
	switch {
	case !ok:
		return result{}, fmt.Errorf("%w: this request shows no host, method or body", ErrInvalid)
	case o.Source == Host:
		return result{text: m.Host()}, nil
	case o.Source == Method:
		return result{text: m.Method()}, nil
	}
	body, err := decodedBody(r, m)
	switch {
	case err != nil || len(body.Bytes) == 0:
		return result{}, err
	case o.Source == Form:
		return body.form(o.Name)
	}
	doc, err := body.json()
	if err != nil {
		return result{}, err
	}
	return canonicalJSON(v.lookup(doc, o.Name))
}

// formatAddress formats an address, without the prefix length if it is a single host. It
// caches the last one, because requests of a client often follow each other.
func (v *Value) formatAddress(p netip.Prefix) string {
	switch {
	case !p.IsValid():
		return ""
	case p == v.network:
		return v.address
	}
	v.network, v.address = p, p.String()
	if p.IsSingleIP() {
		v.address = p.Addr().String()
	}
	return v.address
}
