package key

import (
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/net/http/httpguts"
)

// Missing says what happens when a request does not carry the key, or carries
// one that is not valid.
type Missing string

// What can happen when a key is missing or not valid.
const (
	Reject Missing = "reject" // the request is refused with 400
	Skip   Missing = "skip"   // limits on this key do not apply
	Shared Missing = "shared" // all requests without it are counted together
	Use    Missing = "use"    // another key is used instead
)

// A Spec says how to make one key. It is immutable once compiled.
type Spec struct {
	// Name is the key's name under keys:, or its origin when written in place.
	Name string
	// From is where the text comes from. It is the zero Origin when Join or Of
	// is set.
	From Origin
	// Join lists keys that together make this one; it is nil when From is set.
	Join []*Spec
	// Of is the key of a phone number that this one is a Part of. What happens
	// without it is what Of says.
	Of   *Spec
	Part Part
	// Normalize lists the steps that bring different spellings together, in the
	// order they are taken. E164 is last, if it is there.
	Normalize []Step
	// Phone takes the step E164.
	Phone *Phone
	// Tokens verifies what a key is read from when that is a token.
	Tokens *Tokens
	// Equal lists further places: each that carries the key must carry the same,
	// after normalizing.
	Equal []Origin
	// OnMissing is Reject when empty. It is not consulted when Join is set: then
	// that of the missing part decides.
	OnMissing Missing
	// Fallback is the key to use when OnMissing is Use.
	Fallback *Spec
	// OnInvalid is the same for a key that is not valid; InvalidFallback is the
	// key to use when it is Use. A key given twice, or one that differs from
	// its copy, is always refused.
	OnInvalid       Missing
	InvalidFallback *Spec
	// SetHeader is the field, its name in canonical form, that tells the upstream
	// the normalized text; empty for none. What a client sends in it never reaches the upstream.
	SetHeader string
	// Sensitive says that people see the key masked.
	Sensitive bool
}

// Check returns an error that wraps ErrSpec if parts of s do not fit together.
// It does not look into other specs.
func (s *Spec) Check() error {
	e164 := slices.Index(s.Normalize, E164)
	switch tokens := slices.ContainsFunc(s.places(), func(o Origin) bool { return o.Source == JWT }); {
	case tokens && s.Tokens == nil:
		return fmt.Errorf("%w: a claim needs keys that verify tokens; say where they are", ErrSpec)
	case e164 >= 0 && s.Phone == nil:
		return fmt.Errorf("%w: %s needs to know how phone numbers are written; give a default region", ErrSpec, E164)
	case s.Phone != nil && (e164 < 0 || e164 != len(s.Normalize)-1):
		return fmt.Errorf("%w: %s is the last step; write it at the end", ErrSpec, E164)
	case s.Of != nil && s.Of.Phone == nil:
		return fmt.Errorf("%w: only a key with normalize: %s has a %s; name such a key in of", ErrSpec, E164, s.Part.Kind)
	case s.From.Source == "" && (len(s.Equal) > 0 || len(s.Normalize) > 0 || s.Of == nil && s.SetHeader != ""):
		return fmt.Errorf("%w: must_equal, normalize and set_header belong to a key that has from; write them there", ErrSpec)
	case s.SetHeader != "" && (!httpguts.ValidHeaderFieldName(s.SetHeader) || http.CanonicalHeaderKey(s.SetHeader) != s.SetHeader):
		return fmt.Errorf("%w: %q is not a valid name for a header field; write one such as X-Phone-E164", ErrSpec, s.SetHeader)
	case s.SetHeader != "" && !httpguts.ValidTrailerHeader(s.SetHeader): // nor what frames or routes a message
		return fmt.Errorf("%w: %s means something of its own in HTTP; write a field such as X-Phone-E164", ErrSpec, s.SetHeader)
	case s.OnMissing == Use && s.Fallback == nil, s.OnInvalid == Use && s.InvalidFallback == nil:
		return fmt.Errorf("%w: which key to use instead is not said; name one", ErrSpec)
	}
	return nil
}

// places are all that s itself is read from.
func (s *Spec) places() []Origin {
	if s.From.Source == "" {
		return nil
	}
	return append([]Origin{s.From}, s.Equal...)
}

// Origins lists every place that s, or a key it is made of or may be replaced
// by, is read from: what a request has to keep at hand. Some may be listed more
// than once.
func (s *Spec) Origins() []Origin {
	all := s.places()
	for _, other := range s.others() {
		all = append(all, other.Origins()...)
	}
	return all
}

// ClientChosen reports whether clients can make up values of s, or of a key it is made
// of or may be replaced by, as many as they like. Addresses are given to them,
// tokens are signed, and of global there is one.
func (s *Spec) ClientChosen() bool {
	return slices.ContainsFunc(s.Origins(), func(o Origin) bool {
		return o.Source != ClientIP && o.Source != JWT && o.Source != Global
	})
}

// Headers lists the fields that s, or a key it is made of or may be replaced
// by, sets for the upstream.
func (s *Spec) Headers() []string {
	var all []string
	if s.SetHeader != "" {
		all = append(all, s.SetHeader)
	}
	for _, other := range s.others() {
		all = append(all, other.Headers()...)
	}
	return all
}

// others are the keys that s is made of or may be replaced by.
func (s *Spec) others() []*Spec {
	others := slices.Clone(s.Join)
	for _, o := range []*Spec{s.Of, s.Fallback, s.InvalidFallback} {
		if o != nil {
			others = append(others, o)
		}
	}
	return others
}
