package key

import (
	"errors"
	"fmt"

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
	f, err := whole.find(r, v)
	v.setField(whole.SetHeader, f.text)
	if err != nil {
		v.setField(s.SetHeader, "")
		return whole.onFailure(r, v, err)
	}
	if s.Of != nil {
		f = result{text: s.Part.of(f.number), number: f.number}
		v.setField(s.SetHeader, f.text)
	}
	v.add(s, f)
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
		v.addShared(s, name)
		return nil
	case Use:
		return instead.extract(r, v)
	}
	return fmt.Errorf("%s: %w", s.From, err)
}

// find reads s, which has an origin, from the request. It caches expensive results in v.
func (s *Spec) find(r Request, v *Value) (result, error) {
	expensive := s.Phone != nil || len(s.Equal) > 0 || s.From.Source == JSON || s.From.Source == Form || s.From.Source == JWT
	if expensive {
		for _, m := range v.cache {
			if m.spec == s {
				return m.result, m.err
			}
		}
	}
	f, err := s.readAt(s.From, r, v)
	if len(s.Equal) > 0 {
		err = s.mustEqual(r, v, f, err)
	}
	if err == nil && s.SetHeader != "" && !httpguts.ValidHeaderFieldValue(f.text) {
		err = fmt.Errorf("%w: it cannot be sent in a header field", ErrInvalid)
	}
	if err != nil {
		f = result{}
	}
	if expensive {
		v.cache = append(v.cache, cacheEntry{s, f, err})
	}
	return f, err
}

// readAt reads and normalizes the value at one origin.
func (s *Spec) readAt(o Origin, r Request, v *Value) (result, error) {
	if err := s.checkOneSource(o, r); err != nil {
		return result{}, err
	}
	f, err := o.read(r, v, s.Tokens)
	switch {
	case err != nil:
		return result{}, err
	case o.Source == Global:
		return f, nil
	}
	if err := s.checkAmbiguous(o, f); err != nil {
		return result{}, err
	}
	return s.normalize(f)
}

// normalize normalizes f. An empty result is ErrMissing.
func (s *Spec) normalize(f result) (result, error) {
	for _, step := range s.Normalize {
		if step == Digits || step == E164 {
			if err := checkDigits(f.text); err != nil {
				return result{}, err
			}
		}
		f.text = step.Apply(f.text)
	}
	if f.text == "" {
		return result{}, ErrMissing
	}
	if s.Phone == nil {
		return f, nil
	}
	number, err := s.Phone.Parse(f.text)
	return result{text: number.E164, number: number}, err
}

// mustEqual compares f with the values at s.Equal. It returns err, the error of the key's
// own origin, or ErrMismatch. If the key is missing at its own origin and such a request
// would be accepted, it must be missing at the other origins too, because the upstream
// could use them.
func (s *Spec) mustEqual(r Request, v *Value, f result, err error) error {
	missing, invalid := errors.Is(err, ErrMissing), errors.Is(err, ErrInvalid)
	policy := s.OnMissing
	if invalid {
		policy = s.OnInvalid
	}
	if err != nil && (!missing && !invalid || policy == Reject || policy == "") {
		return err
	}
	for _, o := range s.Equal {
		other, otherErr := s.readAt(o, r, v)
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
