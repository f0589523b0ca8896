package config

import (
	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// Limit is a limit: one or more rates for each value of a key.
type Limit struct {
	// Named is the name of a limit at the top of the file, or none to leave out those of defaults.
	Named string `yaml:"-" short:"true"`
	// Name of the limit in responses, metrics and the store; that of the key when not given.
	Name string `yaml:"name,omitempty" jsonschema:"pattern=^[A-Za-z][A-Za-z0-9_.-]*$"`
	// Was is the name under which the limit was counted before, ROUTE.LIMIT or that of a limit at the top of the file: it keeps the counts of that.
	Was string `yaml:"was,omitempty" jsonschema:"pattern=^[A-Za-z][A-Za-z0-9_.-]*$"`
	// Key is the key that is counted: the name of a key, an origin such as header:X-Phone, or an inline key.
	Of *keyForm `yaml:"key" jsonschema:"required"`
	// Rate is COUNT/WINDOW: 1/60s, 5/1h, 1000/1d.
	One string `yaml:"rate,omitempty" jsonschema:"pattern=^\\s*[0-9]+(/([0-9]*(ms|s|m|h|d|w|y))([0-9]+(ms|s|m|h|d|w|y))*| +per +[A-Za-z]+)\\s*$"`
	// Rates are several rates with different windows.
	Several list `yaml:"rates,omitempty" jsonschema:"pattern=^\\s*[0-9]+(/([0-9]*(ms|s|m|h|d|w|y))([0-9]+(ms|s|m|h|d|w|y))*| +per +[A-Za-z]+)\\s*$" empty:"there is no rate; write for example [5/1m, 20/1h]"`
	// Budget are amounts of money, AMOUNT/WINDOW, instead of rates: 400/1d, 6000/31d. Each request costs its price, and no window, wherever it begins, has more than the amount. Clients see nothing of it unless expose is true.
	Budget list `yaml:"budget,omitempty" jsonschema:"pattern=^\\s*[0-9]+(\\.[0-9]+)?/([0-9]*(ms|s|m|h|d|w|y))([0-9]+(ms|s|m|h|d|w|y))*\\s*$" empty:"there is no amount; write for example [400/1d, 6000/31d]"`
	// Price is the name of the prices that requests cost, for a budget.
	Price string `yaml:"price,omitempty"`
	// Concurrent is how many requests of a key may be in progress at a time, instead of a rate.
	Concurrent int `yaml:"concurrent,omitempty" jsonschema:"minimum=1,maximum=10000"`
	// Distinct is a key whose distinct values are counted for each value of the first key, as in key: client_ip, distinct: phone, rate: 3/1h. A value counts until one window after its last use; using it again meanwhile takes no further permit.
	DistinctOf *keyForm `yaml:"distinct,omitempty"`
	// Cooldown is how long a key is refused after its first request, after its second, and so on, instead of a rate. It starts over after twice the last pause without a request.
	Steps durations `yaml:"cooldown,omitempty" empty:"there is no pause; write for example [1m, 5m, 1h]"`
	// ResetOn selects the responses of another route that reset the cooldown of the same key.
	Reset *Reset `yaml:"reset_on,omitempty"`
	// ReturnOn selects the responses of another route that return what was taken for the same value of another key, so that the limit counts only requests without such a response: key: country, return_on: {route: sms-verify, key: phone}.
	Return *Return `yaml:"return_on,omitempty"`
	// Conversion is the part of the requests beyond the rate that return_on must return: 35% grants for each subject with a return in the window 1.86 further requests that need not be returned. The mode is shadow unless it is given.
	ConversionForm string `yaml:"conversion,omitempty" jsonschema:"pattern=^[1-9][0-9]*%$"`
	// StepUp challenges clients instead of refusing them: a request over the rate passes with a signed token, once, and counts at a second rate.
	StepUp *StepUp `yaml:"step_up,omitempty"`
	// Overrides are other rates for some values of the key.
	OverrideForms map[string]*list `yaml:"overrides,omitempty" empty:"there is no rate; write for example [20000/1h]"`
	// Plans are the rates of each plan, by its name, or none for no limit. A key without a plan, or with one that is not listed, has the limit's own rates. Another plan keeps what is used.
	PlanForms map[string]*list `yaml:"plans,omitempty" empty:"there is no rate; write for example [20000/1h]"`
	// Plan is where the name of the plan is read from: jwt:CLAIM of the verified token, header:NAME of client_ip.trusted_proxies, or a list. Without it a key has a plan only if an operator assigns one.
	PlanForm *planForm `yaml:"plan,omitempty"`
	// RateFrom, with the value descriptor, lets a descriptor of Envoy bring its own limit, whose rate replaces that of this limit.
	RateFrom string `yaml:"rate_from,omitempty" jsonschema:"enum=descriptor"`
	// Algorithm that keeps the rates: token_bucket allows no more than COUNT in any WINDOW; sliding_log promises the same for about half the cost in Redis, and cannot be shared with Redisson; gcra lets permits flow back evenly; fixed_window and sliding_window are cheaper and looser.
	AlgorithmForm string `yaml:"algorithm,omitempty" jsonschema:"default=token_bucket,enum=token_bucket,enum=sliding_log,enum=fixed_window,enum=sliding_window,enum=gcra"`
	// Burst is how many permits gcra grants at once; the rate's count when not given.
	Burst int64 `yaml:"burst,omitempty" jsonschema:"minimum=1,maximum=2147483647"`
	// Cost is how many permits a request takes: header:NAME or query:NAME, 1 if it is missing; or, if only the response says it, what is reserved until then.
	CostForm *costForm `yaml:"cost,omitempty"`
	// MaxCost is the maximum cost of a request.
	MaxCost int `yaml:"max_cost,omitempty" jsonschema:"minimum=1,maximum=2147483647"`
	// Scope: with overall all Weirs that share a store count together, with per_instance each counts by itself, with the full rate.
	ScopeForm string `yaml:"scope" jsonschema:"default=overall,enum=overall,enum=per_instance"`
	// Wait is how long a request may wait for permits before it is refused, in FIFO order for each key.
	Wait duration `yaml:"wait,omitempty"`
	// MaxWaiting is how many requests of a key may wait at a time; 100 when not given.
	MaxWaiting int `yaml:"max_waiting,omitempty" jsonschema:"minimum=1,maximum=100000"`
	// Lease is for how long a node may take permits ahead, for keys that many requests have: 100ms of 10000/1s. Most requests are then decided without a call of the store. In no window are more than the rate used; up to the part of it that the lease is of the window may be refused too early. Permits are not refunded.
	Ahead duration `yaml:"lease,omitempty"`
	// RedissonName is the name of a Redisson RRateLimiter shared with Java programs: {key} stands for the value of the key. Its configuration in Redis takes precedence over the rate.
	RedissonName string `yaml:"redisson_name,omitempty" jsonschema:"default="`
	// RedissonVersion is the oldest Redisson version of those Java programs. It selects the format of a new limiter: that of 3.17 and later is the default, earlier versions encode entries differently, and up to 3.13.2 a limiter is a fixed window, so that up to twice the rate passes across a window boundary.
	RedissonVersion string `yaml:"redisson_version,omitempty" jsonschema:"default="`
	// Penalty bans a key that is refused too often.
	Penalty *Penalty `yaml:"penalty,omitempty"`
	// Count selects the outcomes that stay counted; all when not given.
	Count *Count `yaml:"count,omitempty"`
	// Mode of this limit; that of defaults when not given.
	Mode Mode `yaml:"mode,omitempty" jsonschema:"enum=enforce,enum=shadow,enum=off"`
	// OnStoreFailure of this limit; that of defaults when not given.
	OnStoreFailure OnStoreFailure `yaml:"on_store_failure,omitempty" jsonschema:"enum=allow,enum=deny,enum=local"`
	// Expose makes this limit visible to clients; that of defaults when not given.
	ExposeForm *bool `yaml:"expose,omitempty"`

	Route          string                         `yaml:"-"` // of which it is; "" if it is common: at the top of the file, for several routes
	Routes         []string                       `yaml:"-"` // that name a common limit, and have one count by it
	ID             string                         `yaml:"-"` // under which stores count: FullName, or what was says
	Key            *key.Spec                      `yaml:"-"`
	Distinct       *key.Spec                      `yaml:"-"` // the key whose values are counted; not nil exactly if Algorithm is Distinct
	Conversion     int                            `yaml:"-"` // for Conversion: percentage
	Scope          limiter.Scope                  `yaml:"-"`
	Rates          []limiter.Rate                 `yaml:"-"` // at least one, with different windows
	Algorithm      limiter.Algorithm              `yaml:"-"`
	Overrides      map[limiter.Key][]limiter.Rate `yaml:"-"` // by key, as Privacy.Hash makes it
	Plans          map[string][]limiter.Rate      `yaml:"-"` // by the name of the plan, empty for no limit; nil without plans
	Plan           PlanSource                     `yaml:"-"`
	RedissonFormat limiter.RedissonFormat         `yaml:"-"` // how Java programs keep the limiter
	Cost           *Cost                          `yaml:"-"` // nil: each request costs 1
	Prices         *Prices                        `yaml:"-"` // of a budget, whose permits are the smallest parts of a unit; nil: none
	Expose         bool                           `yaml:"-"` // whether it appears in responses
	Position       Position                       `yaml:"-"`

	form *Limit // as it is written
}

// planForm is where the name of a plan is read from.
type planForm struct {
	// Text is the short form.
	Text string `yaml:"-" short:"true"`

	// List is a file with one KEY=PLAN per line, relative to this file; # begins a comment. It is reloaded when it changes.
	List string `yaml:"list" jsonschema:"default="`
}

// Reset selects the responses that reset a cooldown.
type Reset struct {
	// Route is the name of another route, which uses the same key.
	Route string `yaml:"route" jsonschema:"required"`
	// Status of the responses there: 204, 2xx, 200-204; 2xx when not given.
	Status Statuses `yaml:"status,omitempty" empty:"no status is given; write for example [2xx], or leave it out"`

	Key *key.Spec `yaml:"-"` // the key as a limit or list of that route reads it
}

// Return selects the responses that return permits.
type Return struct {
	// Route is the name of another route, which has a limit or a list on the same key.
	Route string `yaml:"route" jsonschema:"required"`
	// Status of the responses there: 204, 2xx, 200-204; 2xx when not given.
	Status Statuses `yaml:"status,omitempty" empty:"no status is given; write for example [2xx], or leave it out"`
	// Key says for whom permits were taken, such as the number that a code is sent to: a response returns all permits of its value.
	Of *keyForm `yaml:"key" jsonschema:"required"`

	Subject *key.Spec `yaml:"-"` // as the route of the limit reads it
	Key     *key.Spec `yaml:"-"` // the same, as a limit or list of the other route reads it
}

// StepUp lets requests over the rate of a limit pass that prove something.
type StepUp struct {
	// Challenge is the name of the challenge: in the response 403 to a request without a token, and in the claim challenge of tokens. That of the limit when not given.
	Challenge string `yaml:"challenge,omitempty" jsonschema:"pattern=^[A-Za-z][A-Za-z0-9_.-]*$"`
	// Rate is COUNT/WINDOW, at which such requests are counted instead.
	One string `yaml:"rate,omitempty" jsonschema:"pattern=^\\s*[0-9]+(/([0-9]*(ms|s|m|h|d|w|y))([0-9]+(ms|s|m|h|d|w|y))*| +per +[A-Za-z]+)\\s*$"`
	// Rates are several rates with different windows.
	Several list `yaml:"rates,omitempty" jsonschema:"pattern=^\\s*[0-9]+(/([0-9]*(ms|s|m|h|d|w|y))([0-9]+(ms|s|m|h|d|w|y))*| +per +[A-Za-z]+)\\s*$" empty:"there is no rate; write for example [5/1m, 20/1h]"`
	// Token is the header field with the token, which is not forwarded; header:X-Challenge-Token when not given.
	Token string `yaml:"token,omitempty"`
	// JWT verifies the tokens, which have the claims exp, iat, jti, challenge and sub; the section jwt when not given.
	JWT *jwtForm `yaml:"jwt,omitempty"`
	// MaxAge is the maximum age of a token, by its claim iat; 5m when not given.
	MaxAge duration `yaml:"max_age,omitempty"`
	// Key is the key whose value the claim sub has: that of return_on, or else that of the limit, when not given.
	Of *keyForm `yaml:"key,omitempty"`

	Rates     []limiter.Rate    `yaml:"-"` // at least one, with different windows
	Algorithm limiter.Algorithm `yaml:"-"`
	Header    string            `yaml:"-"` // the field with the token, in canonical form
	Tokens    *key.Tokens       `yaml:"-"` // verifies tokens; nil: there are no keys, and no token is accepted
	Key       *key.Spec         `yaml:"-"` // the claim sub of a token has its value
}

// Count selects the outcomes that stay counted.
type Count struct {
	// Status of the upstream's response: 404, 4xx, 400-403. After others the permits are refunded.
	Status Statuses `yaml:"status" jsonschema:"required"`
}

// Penalty bans a key that is refused too often.
type Penalty struct {
	// Ban is how long the limit refuses every request of the key.
	Ban duration `yaml:"ban" jsonschema:"required"`
	// After is the number of refusals within the longest window of the limit.
	After int64 `yaml:"after" jsonschema:"default=1,minimum=1,maximum=1000000"`
}

// jwtForm configures the verification of bearer tokens.
type jwtForm struct {
	// Secret of at least 32 bytes, for HS256, HS384 and HS512.
	Secret string `yaml:"secret" jsonschema:"default=" hidden:"true"`
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
	Text string `yaml:"-" short:"true"`

	// From is the origin of the value: header:NAME, query:NAME, cookie:NAME, path:NAME, form:NAME, json:/POINTER, jwt:CLAIM, client_ip, host, method or global.
	From string `yaml:"from,omitempty"`
	// MustEqual names further origins, one or several: those that are present must have the same value, or the request is refused.
	MustEqual list `yaml:"must_equal,omitempty"`
	// Of is the key, a phone number, that this key is a part of.
	Of string `yaml:"of,omitempty"`
	// Part of the phone number: country (CN), dial_code (+86), or prefix: the number without its last digits.
	Part key.PartKind `yaml:"part,omitempty" jsonschema:"enum=country,enum=dial_code,enum=prefix"`
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
	As []key.Step `yaml:"as" jsonschema:"required,enum=trim,enum=lower,enum=nfkc,enum=fold,enum=digits,enum=e164" short:"true"`
	// DefaultRegion is the country of numbers without a country code, for e164: CN.
	DefaultRegion string `yaml:"default_region,omitempty" jsonschema:"pattern=^[A-Z][A-Z]$"`
	// Extensions of phone numbers are refused, since they cannot receive SMS, or kept: all extensions of a number are one key; refuse when not given.
	Extensions key.Extensions `yaml:"extensions,omitempty" jsonschema:"enum=refuse,enum=keep"`
	// AllowTypes are the line types that e164 accepts; all when not given.
	AllowTypes []key.LineType `yaml:"allow_types,omitempty" jsonschema:"enum=mobile,enum=fixed,enum=fixed_or_mobile,enum=toll_free,enum=premium,enum=shared_cost,enum=voip,enum=pager,enum=uan,enum=voicemail,enum=personal"`
}

// missingForm is the handling of a request without the key.
type missingForm struct {
	// Policy is the short form.
	Policy key.Missing `yaml:"-" jsonschema:"enum=reject,enum=skip,enum=shared" short:"true"`

	// Use another key instead: its name or an origin.
	Use string `yaml:"use" jsonschema:"required"`
}
