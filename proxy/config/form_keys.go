package config

// jwtForm configures the verification of bearer tokens.
type jwtForm struct {
	// Secret of at least 32 bytes, for HS256, HS384 and HS512.
	Secret secret `yaml:"secret" jsonschema:"default="`
	// Keys are PEM files with public keys or certificates, relative to this file.
	Keys list `yaml:"keys"`
	// JWKS is a set of public keys: an https URL or a file, relative to this file.
	JWKS string `yaml:"jwks" jsonschema:"default="`
	// Methods are the accepted signature algorithms; all that fit the keys when not given.
	Methods list `yaml:"methods"`
	// Issuer that tokens must have.
	Issuer string `yaml:"issuer" jsonschema:"default="`
	// Audience lists accepted audiences; a token must have one of them.
	Audience list `yaml:"audience"`
	// Leeway is the tolerated clock skew of the issuer.
	Leeway duration `yaml:"leeway" jsonschema:"default=30s"`
}

// keyForm defines a key: where its value is read from, or which keys it joins.
type keyForm struct {
	// Text is the short form: an origin or, in a limit, the name of a key.
	Text string `yaml:"-"`

	// From is the origin of the value: header:NAME, query:NAME, cookie:NAME, path:NAME, form:NAME, json:/POINTER, jwt:CLAIM, client_ip, host, method or global.
	From string `yaml:"from,omitempty"`
	// MustEqual names further origins, one or several: those that are present must have the same value, or the request is refused.
	MustEqual list `yaml:"must_equal,omitempty"`
	// Of is the key, a phone number, that this key is a part of.
	Of string `yaml:"of,omitempty"`
	// Part of the phone number: country (CN), dial_code (+86), or prefix: the number without its last digits.
	Part string `yaml:"part,omitempty" jsonschema:"enum=country,enum=dial_code,enum=prefix"`
	// DropLast is the number of digits that a prefix omits.
	DropLast int `yaml:"drop_last,omitempty" jsonschema:"minimum=1,maximum=10"`
	// Join combines several keys into one, each the name of a key or an origin.
	Join list `yaml:"join,omitempty"`
	// Normalize normalizes the value: trim, lower, nfkc, fold, digits, e164.
	Normalize *normalForm `yaml:"normalize,omitempty"`
	// OnMissing is the handling of a request without the key; reject when not given.
	OnMissing *missingForm `yaml:"on_missing,omitempty"`
	// OnInvalid is the handling of a request whose key is not valid, for example not a phone number; reject when not given.
	OnInvalid *missingForm `yaml:"on_invalid,omitempty"`
	// SetHeader is a header field that passes the normalized value to the upstream; the same field from a client is dropped.
	SetHeader string `yaml:"set_header,omitempty"`
	// Sensitive masks the key wherever it is shown. When not given, cookies and what is called like a secret (Authorization, X-Api-Key, token) are masked, except that the log has their hash alone.
	Sensitive *bool `yaml:"sensitive,omitempty"`
}

// normalForm lists the steps of the normalization, in order.
type normalForm struct {
	// As is one step or several. nfkc and fold unite spellings that databases compare as equal: full-width letters, é in one or two characters, ß and ss.
	As list `yaml:"as" jsonschema:"required,enum=trim,enum=lower,enum=nfkc,enum=fold,enum=digits,enum=e164"`
	// DefaultRegion is the country of numbers without a country code, for e164: CN.
	DefaultRegion string `yaml:"default_region,omitempty" jsonschema:"pattern=^[A-Z][A-Z]$"`
	// Extensions of phone numbers are refused, since they cannot receive SMS, or kept: all extensions of a number are one key; refuse when not given.
	Extensions string `yaml:"extensions,omitempty" jsonschema:"enum=refuse,enum=keep"`
	// AllowTypes are the line types that e164 accepts; all when not given.
	AllowTypes list `yaml:"allow_types,omitempty" jsonschema:"enum=mobile,enum=fixed,enum=fixed_or_mobile,enum=toll_free,enum=premium,enum=shared_cost,enum=voip,enum=pager,enum=uan,enum=voicemail,enum=personal"`
}

// missingForm is the handling of a request without the key.
type missingForm struct {
	// Policy is the short form.
	Policy string `yaml:"-" jsonschema:"enum=reject,enum=skip,enum=shared"`

	// Use another key instead: its name or an origin.
	Use string `yaml:"use" jsonschema:"required"`
}
