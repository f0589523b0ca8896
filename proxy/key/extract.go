package key

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

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
	// ErrInvalid reports an invalid key: not a phone number, a body of another type, a
	// token without a valid signature.
	ErrInvalid = errors.New("key not valid")
	// ErrAmbiguous reports a key that servers could read differently: it is repeated, or in
	// a form that servers interpret in different ways.
	ErrAmbiguous = errors.New("key is ambiguous")
	// ErrMismatch reports that two parts of a request that must have the same key have
	// different ones.
	ErrMismatch = errors.New("key differs from its other copy")
	// ErrBodyTooLarge reports a body that is too long to be buffered for a key.
	// Request.Body returns it.
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
		f.text = r.Descriptor(o.Name)
	case Host:
		f.text = r.Host()
	case Method:
		f.text = r.Method()
	case JSON, Form:
		*f, err = o.readBody(r, v)
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

// readBody reads an origin in the body.
func (o *Origin) readBody(r Request, v *Value) (result, error) {
	body, err := decodedBody(r)
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

// formatAddress is FormatClient. It caches the last address, because requests of a client often follow each other.
func (v *Value) formatAddress(p netip.Prefix) string {
	if p != v.network {
		v.network, v.address = p, FormatClient(p)
	}
	return v.address
}

// FormatClient formats the network of a client, without the prefix length if it is a single host; "" if there is none.
func FormatClient(p netip.Prefix) string {
	switch {
	case !p.IsValid():
		return ""
	case p.IsSingleIP():
		return p.Addr().String()
	}
	return p.String()
}

// cookie returns the value of the cookie with this name, "" if there is none. Escapes are
// decoded, because some servers do so and a client could otherwise send one value in many
// spellings. ErrAmbiguous reports what servers parse differently: a second Cookie field,
// which some join with a comma; a name in another spelling, or with whitespace around it; a
// quoted string that extends beyond its pair; and in the value, characters that RFC 6265
// forbids, an invalid escape, an unescaped plus, and the prefix of JSON cookies.
func cookie(fields []string, name string) (string, error) {
	field, err := single(fields)
	if err != nil {
		return "", fmt.Errorf("%w: two Cookie fields", ErrAmbiguous)
	}
	var names NameSet                     // created when needed
	value, seen, open := "", false, false // open: inside a quoted string, for servers that support them
	for after := byte(';'); field != ""; {
		pair, separator, rest := cutCookie(field)
		this, text, _ := strings.Cut(strings.TrimLeft(pair, " "), "=")
		if this != name && names == nil {
			names = names.With(name)
		}
		switch {
		case this != name && (len(names.Confused(nil, this)) > 0 || nameless(this, text, name)):
			return "", fmt.Errorf("%w: some servers read another cookie as this one", ErrAmbiguous)
		case this == name && (seen || open || after == ',' || separator == ','):
			return "", fmt.Errorf("%w: a repeated cookie, or one next to a comma or within quotes", ErrAmbiguous)
		case this == name:
			value, seen = text, true
		}
		open = open != (strings.Count(pair, `"`)%2 != 0) || strings.Contains(pair, `\"`)
		field, after = rest, separator
	}
	return cookieValue(value)
}

// nameless reports whether a pair without a name, such as "=sid=1", is this cookie for
// servers that split it at a later "=".
func nameless(this, text, name string) bool {
	inner, _, _ := strings.Cut(text, "=")
	return cmp.Or(strings.TrimSpace(this), strings.TrimSpace(inner)) == name
}

// cookieValue decodes a value.
func cookieValue(value string) (string, error) {
	plain, err := url.PathUnescape(value)
	switch {
	case strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }):
		return "", fmt.Errorf("%w: a quote, space, backslash or non-ASCII byte in a cookie", ErrAmbiguous)
	case strings.Contains(value, "+"):
		return "", fmt.Errorf("%w: a plus in a cookie, which some servers read as a space; write %%2B", ErrAmbiguous)
	case err != nil, strings.ContainsAny(plain, ` "\`):
		return "", fmt.Errorf("%w: a %% in a cookie that is not a valid escape, or an escaped quote, space or "+
			"backslash", ErrAmbiguous)
	case strings.HasPrefix(plain, "j:"):
		return "", fmt.Errorf("%w: a cookie that Express reads as JSON", ErrAmbiguous)
	}
	return plain, nil
}

// cutCookie splits the first pair off a Cookie field. Some old servers also split at
// commas.
func cutCookie(field string) (pair string, separator byte, rest string) {
	i := strings.IndexAny(field, ";,")
	if i < 0 {
		return field, ';', ""
	}
	return field[:i], field[i], field[i+1:]
}
