package key

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/net/http/httpguts"
)

// Missing is the handling of a request without the key, or with an invalid one.
type Missing string

// Values of Missing.
const (
	Reject Missing = "reject" // the request is refused with 400
	Skip   Missing = "skip"   // limits on this key do not apply
	Shared Missing = "shared" // all requests without it share one count
	Use    Missing = "use"    // another key is used instead
)

// A Spec describes how to extract one key. It is immutable once compiled, and safe for
// concurrent use.
type Spec struct {
	// Name is the name of the key under keys:, or its origin if it is defined inline.
	Name string
	// From is the origin of the text. It is zero if Join or Of is set.
	From Origin
	// Join lists the keys to combine; it is nil if From is set.
	Join []*Spec
	// Of is the phone number key of which this is a Part. Its OnMissing and OnInvalid
	// apply.
	Of   *Spec
	Part Part
	// Normalize lists the normalization steps in order. E164 must be the last.
	Normalize []Step
	// Phone implements the step E164.
	Phone *Phone
	// Tokens verifies the token that a key is read from.
	Tokens *Tokens
	// Equal lists further origins, which must have the same normalized value if they are
	// present.
	Equal []Origin
	// OnMissing is Reject if empty. If Join is set, that of the missing part applies
	// instead.
	OnMissing Missing
	// Fallback is the key to use when OnMissing is Use.
	Fallback *Spec
	// OnInvalid is the same for an invalid key; InvalidFallback is the key to use if it is
	// Use. A repeated key, or one that differs from a value in Equal, is always refused.
	OnInvalid       Missing
	InvalidFallback *Spec
	// SetHeader is the header field, in canonical form, that passes the normalized text to
	// the upstream; empty for none. The client's own field is removed.
	SetHeader string
	// Sensitive is true if the key is masked for display, and in the log.
	Sensitive bool
	// Secret is true if the key is masked for display, because it is called like a secret; the log has its hash alone.
	Secret bool
}

// Check returns an error that wraps ErrSpec if the fields of s are inconsistent. It does
// not check other specs.
func (s *Spec) Check() error {
	e164 := slices.Index(s.Normalize, E164)
	switch tokens := slices.ContainsFunc(s.places(), func(o Origin) bool { return o.Source.IsSigned() }); {
	case tokens && s.Tokens == nil:
		return fmt.Errorf("%w: a claim needs keys to verify tokens; configure jwt", ErrSpec)
	case e164 >= 0 && e164 != len(s.Normalize)-1:
		return fmt.Errorf("%w: %s is the last step; write it at the end", ErrSpec, E164)
	case s.Of != nil && s.Of.Phone == nil:
		return fmt.Errorf("%w: only a key with normalize: %s has a %s; name such a key in of", ErrSpec,
			E164, s.Part.Kind)
	case s.From.Source == 0 && (len(s.Equal) > 0 || len(s.Normalize) > 0 || s.Of == nil && s.SetHeader != ""):
		return fmt.Errorf("%w: must_equal, normalize and set_header belong to a key that has from; write them there",
			ErrSpec)
	case s.SetHeader != "" && !httpguts.ValidHeaderFieldName(s.SetHeader):
		return fmt.Errorf("%w: %q is not a valid name for a header field; write one such as X-Phone-E164",
			ErrSpec, s.SetHeader)
	// and not a field that frames or routes a message
	case s.SetHeader != "" && !httpguts.ValidTrailerHeader(s.SetHeader):
		return fmt.Errorf("%w: %s has a meaning in HTTP; write a field such as X-Phone-E164", ErrSpec, s.SetHeader)
	}
	return nil
}

// places returns all origins of s itself.
func (s *Spec) places() []Origin {
	if s.From.Source == 0 {
		return nil
	}
	return append([]Origin{s.From}, s.Equal...)
}

// Origins returns all origins of s and of the keys that it consists of or that may replace
// it, possibly with duplicates. A request must provide these.
func (s *Spec) Origins() (origins []Origin) {
	for _, one := range s.all() {
		origins = append(origins, one.places()...)
	}
	return origins
}

// Required returns Origins without those in Equal, which a request may lack.
func (s *Spec) Required() (origins []Origin) {
	for _, one := range s.all() {
		if one.From.Source != 0 {
			origins = append(origins, one.From)
		}
	}
	return origins
}

// ClientChosen reports whether clients can choose any number of values for s, or for a key
// that it consists of or that may replace it. They cannot choose addresses, signed tokens,
// or the global key.
func (s *Spec) ClientChosen() bool {
	return slices.ContainsFunc(s.Origins(), func(o Origin) bool {
		return table[o.Source].isChosen
	})
}

// InBody reports whether the body must be read for s.
func (s *Spec) InBody() bool {
	return slices.ContainsFunc(s.Origins(), func(o Origin) bool { return o.Source.IsBody() })
}

// Headers returns the header fields that s, or a key that it consists of or that may
// replace it, sets for the upstream.
func (s *Spec) Headers() (names []string) {
	for _, one := range s.all() {
		if one.SetHeader != "" {
			names = append(names, one.SetHeader)
		}
	}
	return names
}

// all returns s, the keys that it consists of or that may replace it, and theirs.
func (s *Spec) all() []*Spec {
	all := []*Spec{s}
	for _, other := range slices.Concat(s.Join, []*Spec{s.Of, s.Fallback, s.InvalidFallback}) {
		if other != nil {
			all = append(all, other.all()...)
		}
	}
	return all
}

// A Source is the part of a request that a key is read from. The zero Source is none: the
// key is made of others.
type Source uint8

// The sources that a key can be read from.
const (
	Header     Source = iota + 1 // a header field
	Query                        // a query parameter
	Path                         // a {parameter} of the route's path
	Cookie                       // a cookie
	Form                         // a field of a form in the body
	JSON                         // a value in a JSON body, by its pointer
	JWT                          // a claim of the verified bearer token
	ClientIP                     // the client's address; for IPv6, its network
	Host                         // the requested host, in lower case
	Method                       // the request method
	Descriptor                   // an entry of a descriptor, which Envoy sends instead of a request
	Global                       // one key for all requests

	numSources
)

// traits are what a source is, for all that treats sources differently without reading
// them.
type traits struct {
	name      string   // in configuration files
	naming    string   // what to write as its name
	fields    []string // the fields that must reach the upstream as they were read
	confused  Source   // the source in which some servers look for the same name
	isNamed   bool     // needs a name, and a request may lack it
	isSpelled bool     // clients write the text and nobody signs it, so servers may read it in other ways
	isLatin   bool     // some servers read its bytes as Latin-1
	isChosen  bool     // clients can choose any number of values
	isBody    bool     // is read from the body
	isCostly  bool     // takes long to read, so that it is read late and once
	isLogged  bool     // a log may have it in a field of its own
	isOpen    bool     // has few values, which tell nothing about a person
}

// table has the traits of each source, and none for that of keys that are made of others.
var table = [numSources]traits{
	Header: {name: "header", naming: "name the header field, for example header:X-Phone",
		isNamed: true, isSpelled: true, isLatin: true, isChosen: true, isLogged: true},
	Query: {name: "query", naming: "name the parameter, for example query:user", confused: Form,
		isNamed: true, isSpelled: true, isChosen: true, isLogged: true},
	Path: {name: "path", naming: "name the parameter, for example path:user",
		isNamed: true, isSpelled: true, isChosen: true},
	Cookie: {name: "cookie", naming: "name the cookie, for example cookie:session", fields: []string{"Cookie"},
		isNamed: true, isSpelled: true, isChosen: true, isLogged: true},
	Form: {name: "form", naming: "name the parameter, for example form:user", confused: Query,
		fields:  []string{"Content-Type", "Content-Encoding"},
		isNamed: true, isSpelled: true, isLatin: true, isChosen: true, isBody: true, isCostly: true, isLogged: true},
	JSON: {name: "json", confused: Query, naming: "write a JSON pointer, for example json:/user/phone, with ~1 for a slash and ~0 for " +
		"a tilde in a name", fields: []string{"Content-Type", "Content-Encoding"},
		isNamed: true, isSpelled: true, isChosen: true, isBody: true, isCostly: true, isLogged: true},
	JWT: {name: "jwt", naming: "name the claim, for example jwt:sub", fields: []string{"Authorization"},
		isNamed: true, isCostly: true},
	ClientIP: {name: "client_ip"},
	Host:     {name: "host", isChosen: true, isOpen: true},
	Method:   {name: "method", isChosen: true, isOpen: true},
	Descriptor: {name: "descriptor", naming: "name the entry, for example descriptor:remote_address",
		isNamed: true, isSpelled: true, isChosen: true},
	Global: {name: "global"},
}

// sourceOf returns the source with this name, 0 if there is none.
func sourceOf(name string) Source {
	return Source(max(0, slices.IndexFunc(table[:], func(t traits) bool { return t.name == name })))
}

// possible returns an error that wraps ErrSpec if no request has text at s, as far as all texts there are known.
func (s Source) possible(text string) error {
	switch lower := strings.ToLower(text); {
	case s == Host && (lower != text || strings.ContainsAny(text, "/*") || strings.Count(text, ":") == 1):
		return fmt.Errorf("%w: not a host as requests have it; write it in lower case and without a port, for "+
			"example api.example.com", ErrSpec)
	case s == Method && strings.ToUpper(text) != text:
		return fmt.Errorf("%w: not a method; write %s", ErrSpec, strings.ToUpper(text))
	}
	return nil
}

// String returns the name of s in configuration files; "" for none.
func (s Source) String() string { return table[s].name }

// IsField reports whether s is a header field, whose name is that of the origin.
func (s Source) IsField() bool { return s == Header }

// IsNamed reports whether s needs the name of a field, which a request may lack.
func (s Source) IsNamed() bool { return table[s].isNamed }

// IsSpelled reports whether clients write the text at s and nobody signs it, so that
// servers may read it in different ways.
func (s Source) IsSpelled() bool { return table[s].isSpelled }

// IsSigned reports whether s is in a token, which must be verified.
func (s Source) IsSigned() bool { return s == JWT }

// IsBody reports whether s is read from the body.
func (s Source) IsBody() bool { return table[s].isBody }

// IsCostly reports whether reading s takes long: it is in the body or signed.
func (s Source) IsCostly() bool { return table[s].isCostly }

// IsLogged reports whether a log may have a value at s in a field of its own.
func (s Source) IsLogged() bool { return table[s].isLogged }

// IsSecret reports whether the values at s are secrets, whatever they are called.
func (s Source) IsSecret() bool { return s == Cookie }

// IsAddress reports whether the values at s are addresses and networks.
func (s Source) IsAddress() bool { return s == ClientIP }

// IsEntry reports whether s is an entry of a descriptor, which no request has.
func (s Source) IsEntry() bool { return s == Descriptor }

// IsConstant reports whether all requests have the same value at s.
func (s Source) IsConstant() bool { return s == Global }

// An Origin is a Source and the name of the field in it.
type Origin struct {
	Source Source
	// Name is in canonical form for Header, an RFC 6901 pointer for JSON, and
	// empty for ClientIP, Host, Method and Global.
	Name string
}

const origins = "header:NAME, query:NAME, path:NAME, cookie:NAME, form:NAME, json:/POINTER, jwt:CLAIM, " +
	"descriptor:ENTRY, client_ip, host, method or global"

// LongName returns text, or client_ip for ip, which is short for it in configuration files.
func LongName(text string) string {
	if text == "ip" {
		return ClientIP.String()
	}
	return text
}

// ParseOrigin parses "header:X-Phone", "query:user", "cookie:sid", "form:phone",
// "json:/user/phone", "path:id", "jwt:sub", "client_ip", "host", "method" or "global".
// Errors wrap ErrSpec and contain what to write instead.
func ParseOrigin(s string) (Origin, error) {
	source, name, named := strings.Cut(s, ":")
	o := Origin{Source: sourceOf(source), Name: name}
	is := table[o.Source]
	valid := name != "" && printable(name)
	switch o.Source {
	case 0:
		return Origin{}, fmt.Errorf("%w: %q; write %s", ErrSpec, s, origins)
	case Header, Cookie: // both are tokens of RFC 9110
		valid = httpguts.ValidHeaderFieldName(name)
	case JSON:
		valid = valid && jsontext.Pointer(name).IsValid()
	}
	switch {
	case !is.isNamed && named:
		return Origin{}, fmt.Errorf("%w: %q; %s takes no name: write %s", ErrSpec, s, source, source)
	case is.isNamed && !valid:
		return Origin{}, fmt.Errorf("%w: %q; %s", ErrSpec, s, is.naming)
	case o.Source.IsField():
		o.Name = http.CanonicalHeaderKey(name)
	}
	return o, nil
}

// String returns o in the syntax of ParseOrigin.
func (o Origin) String() string {
	if o.Name == "" {
		return o.Source.String()
	}
	return o.Source.String() + ":" + o.Name
}

// HeaderField returns the origin of a header field, whose name is in canonical form.
func HeaderField(name string) Origin { return Origin{Header, name} }

// PathParameter returns the origin of a parameter of the route's path.
func PathParameter(name string) Origin { return Origin{Path, name} }

// Fields returns the header fields without which a value at o is not read as it was sent.
func (o Origin) Fields() []string {
	if o.Source.IsField() {
		return []string{o.Name}
	}
	return table[o.Source].fields
}

// Confused returns the origin in which some servers look for the same name as o, and true
// if there is one: a query parameter and a field of a form, and a query parameter for the first
// name of a JSON pointer.
func (o Origin) Confused() (Origin, bool) {
	if o.Source == JSON {
		o.Name, _ = segment(o.Name)
	}
	other := table[o.Source].confused
	return Origin{other, o.Name}, other != 0
}

// printable reports whether s has no control characters, which the names of keys must not
// have: see tag.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' })
}
