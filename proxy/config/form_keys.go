package config

// jwtForm says which bearer tokens are believed.
type jwtForm struct {
	// Secret of at least 32 bytes, for HS256, HS384 and HS512.
	Secret secret `yaml:"secret" jsonschema:"default="`
	// Keys are PEM files with public keys or certificates, relative to this file.
	Keys list `yaml:"keys"`
	// JWKS is a set of public keys: an https URL or a file, relative to this file.
	JWKS string `yaml:"jwks" jsonschema:"default="`
	// Methods that tokens may be signed with; all that fit the keys when not given.
	Methods list `yaml:"methods"`
	// Issuer that tokens must name.
	Issuer string `yaml:"issuer" jsonschema:"default="`
	// Audience of which tokens must name one.
	Audience list `yaml:"audience"`
	// Leeway is by how much the issuer's clock may be wrong.
	Leeway duration `yaml:"leeway" jsonschema:"default=30s"`
}

// keyForm says how to make a key: where its text comes from, or which keys it
// is joined of.
type keyForm struct {
	// Text is the short form: an origin, or in a limit the name of a key.
	Text string `yaml:"-"`

	// From is where the text comes from: header:NAME, query:NAME, cookie:NAME, path:NAME, form:NAME, json:/POINTER, jwt:CLAIM, client_ip, host, method or global.
	From string `yaml:"from,omitempty"`
	// MustEqual names further places, one or several: each that carries the key must carry the same, or the request is refused.
	MustEqual list `yaml:"must_equal,omitempty"`
	// Of is another key, a phone number, that this one is a part of.
	Of string `yaml:"of,omitempty"`
	// Part of the phone number: country (CN), dial_code (+86), or prefix: the number without its last digits.
	Part string `yaml:"part,omitempty" jsonschema:"enum=country,enum=dial_code,enum=prefix"`
	// DropLast is how many digits a prefix leaves out.
	DropLast int `yaml:"drop_last,omitempty" jsonschema:"minimum=1,maximum=10"`
	// Join makes one key of several, each a key's name or an origin.
	Join list `yaml:"join,omitempty"`
	// Normalize brings different spellings into one form: trim, lower, digits, e164.
	Normalize *normalForm `yaml:"normalize,omitempty"`
	// OnMissing is what happens to a request without the key; reject when not given.
	OnMissing *missingForm `yaml:"on_missing,omitempty"`
	// OnInvalid is what happens to a request whose key is not valid, for example no phone number; reject when not given.
	OnInvalid *missingForm `yaml:"on_invalid,omitempty"`
	// SetHeader is the field in which the upstream is told the normalized text; what a client sends in it is dropped.
	SetHeader string `yaml:"set_header,omitempty"`
	// Sensitive says that people see the key masked.
	Sensitive bool `yaml:"sensitive,omitempty" jsonschema:"default=false"`
}

// normalForm lists steps, in the order they are taken.
type normalForm struct {
	// As is one step or several.
	As list `yaml:"as" jsonschema:"required,enum=trim,enum=lower,enum=digits,enum=e164"`
	// DefaultRegion is the country whose numbers may come without a country code, for e164: CN.
	DefaultRegion string `yaml:"default_region,omitempty" jsonschema:"pattern=^[A-Z][A-Z]$"`
	// Extensions behind a phone number are refused, since nobody can text them, or kept: all extensions of one number are one key; refuse when not given.
	Extensions string `yaml:"extensions,omitempty" jsonschema:"enum=refuse,enum=keep"`
	// AllowTypes are the kinds of lines that e164 takes; all when not given.
	AllowTypes list `yaml:"allow_types,omitempty" jsonschema:"enum=mobile,enum=fixed,enum=fixed_or_mobile,enum=toll_free,enum=premium,enum=shared_cost,enum=voip,enum=pager,enum=uan,enum=voicemail,enum=personal"`
}

// missingForm says what happens to a request without the key.
type missingForm struct {
	// Policy is the short form.
	Policy string `yaml:"-" jsonschema:"enum=reject,enum=skip,enum=shared"`

	// Use another key instead: its name or an origin.
	Use string `yaml:"use" jsonschema:"required"`
}
