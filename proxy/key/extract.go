package key

import (
	"errors"
	"fmt"
	"net/netip"
)

var (
	// ErrMissing says that a request does not carry a key that it must carry.
	ErrMissing = errors.New("key missing")
	// ErrAmbiguous says that a request carries a key more than once: which one
	// the upstream would believe is not known, so none is.
	ErrAmbiguous = errors.New("key given more than once")
)

// A Request is what keys are read from.
type Request interface {
	// Header returns all values of the field with this canonical name.
	Header(name string) []string
	// Query returns all values of the query parameter.
	Query(name string) []string
	// Param returns the value of the path's {parameter}, "" if it has none.
	Param(name string) string
	// Client returns the client's address, IPv6 already cut to its network.
	Client() netip.Prefix
}

// A Value is a key's text as found in one request.
type Value struct {
	// Parts are the texts after normalizing, one unless keys were joined.
	Parts []string
	// Skip says that the key is missing and limits on it do not apply.
	Skip bool
}

// Extract reads the key from r into v, whose Parts it reuses. Errors wrap
// ErrMissing or ErrAmbiguous and name the key, never its value.
func (s *Spec) Extract(r Request, v *Value) error {
	v.Parts, v.Skip = v.Parts[:0], false
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
	text, err := s.From.read(r)
	if err != nil {
		return fmt.Errorf("%s: %w", s.From, err)
	}
	for _, step := range s.Normalize {
		text = step.Apply(text)
	}
	if text == "" && s.From.Source != Global {
		return s.missing(r, v)
	}
	// The name stands first, so that the value of one key never counts under
	// another whose text happens to be the same.
	v.Parts = append(v.Parts, s.Name, text)
	return nil
}

// missing does what the configuration says of a request without the key.
func (s *Spec) missing(r Request, v *Value) error {
	switch s.OnMissing {
	case Skip:
		v.Skip = true
		return nil
	case Shared:
		v.Parts = append(v.Parts, s.Name)
		return nil
	case Use:
		return s.Instead.extract(r, v)
	}
	return fmt.Errorf("%s: %w", s.From, ErrMissing)
}

// read returns the one text at o, "" if there is none.
func (o Origin) read(r Request) (string, error) {
	switch o.Source {
	case Header:
		return one(r.Header(o.Name))
	case Query:
		return one(r.Query(o.Name))
	case Path:
		return r.Param(o.Name), nil
	case ClientIP:
		return client(r.Client()), nil
	}
	return "", nil
}

func one(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", ErrAmbiguous
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
