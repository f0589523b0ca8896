package config

import (
	"net/netip"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// The kinds of values in forms.
type (
	duration  = time.Duration
	durations = []duration
	size      = form.Size
	list      = []string
)

// Problems of a file, and where they are.
type (
	Position = form.Position
	Problem  = form.Problem
	Problems = form.Problems
)

// The types in form*.go describe the YAML file: one struct for each mapping. Tags
// hold the name of a field, whether it is required, its allowed values and its
// default; the decoder and the JSON Schema are both derived from them. Comments
// become descriptions in the schema.

// Config is a configuration file. An included file may have keys, lists, limits, upstreams and routes only.
type Config struct {
	// Version of the format.
	Version int `yaml:"version" jsonschema:"default=1,minimum=1,maximum=1"`
	// Include names further files, relative to this file, whose keys, lists, limits, upstreams and routes are added to this one; patterns with * are allowed.
	Include list `yaml:"include"`
	// Listen configures the listeners for clients.
	Listen Listen `yaml:"listen"`
	// Admin configures the admin listener.
	Admin Admin `yaml:"admin"`
	// Store is where counts are kept: in this process, or in a Redis that several proxies share.
	Store Store `yaml:"store" jsonschema:"default=memory,enum=memory,enum=redis"`
	// Redis configures the connection to Redis for store: redis.
	Redis Redis `yaml:"redis"`
	// Reload selects the source of the configuration.
	Reload Reload `yaml:"reload"`
	// ClientIP configures how the address of a client is determined behind proxies.
	ClientIP ClientIP `yaml:"client_ip"`
	// Privacy configures the hashing of keys and of addresses in logs.
	Privacy Privacy `yaml:"privacy"`
	// Defaults apply to limits and routes that do not set these fields.
	Defaults Defaults `yaml:"defaults"`
	// Errors are the texts of other errors than refusals by limits, by status: 400 to 599, or 4xx or 5xx for all others of a class. Those of a route come first.
	ErrorTexts map[string]*ErrorText `yaml:"errors,omitempty"`
	// Alerts configures the webhook for exhausted limits.
	Alerts Alerts `yaml:"alerts"`
	// AccessLog configures the access log.
	AccessLog AccessLog `yaml:"access_log"`
	// Traces configures the export of traces (OpenTelemetry).
	Traces Traces `yaml:"traces"`
	// JWT configures the verification of bearer tokens for keys from jwt:.
	JWT *jwtForm `yaml:"jwt,omitempty"`
	// Keys are the named keys that limits count by.
	KeyForms map[string]*keyForm `yaml:"keys,omitempty"`
	// Lists are named lists of keys that bypass the limits, are denied, or alone are let through.
	ListForms map[string]*List `yaml:"lists,omitempty"`
	// Prices are lists of what requests cost, for budgets.
	PriceForms map[string]*Prices `yaml:"prices,omitempty"`
	// Limits are the named limits that have one count for all routes that name them.
	LimitForms map[string]*Limit `yaml:"limits,omitempty"`
	// Upstreams are the named upstreams.
	Upstreams map[string]*Upstream `yaml:"upstreams,omitempty"`
	// Routes are the routes; the most specific match wins.
	Routes []*Route `yaml:"routes,omitempty"`

	Errors map[int]Reject       `yaml:"-"` // by status, for routes without their own
	Tokens []*key.Tokens        `yaml:"-"` // verify tokens: that of the section jwt, and those of step_up
	Keys   map[string]*key.Spec `yaml:"-"` // by name; parts and replacements are resolved

	// Hash is the SHA-256 of everything that was read except the sections listen and admin,
	// in hexadecimal: machines that differ only in these have the same configuration. It
	// does not depend on the directory of the files.
	Hash string `yaml:"-"`
	// Sum is like Hash for this machine alone: with these sections, and with the files that
	// are not pushed.
	Sum string `yaml:"-"`
	// Files are the files that were read, the main file first.
	Files []string `yaml:"-"`
	// Globs are the include patterns, relative ones joined with the directory of the main
	// file: a new file that matches one changes the configuration.
	Globs []string `yaml:"-"`
	// Warnings report values that are allowed but probably mistakes, in the order of
	// Problems.
	Warnings []Problem `yaml:"-"`
	// Remarks are about values that do no harm, such as keys that nothing uses.
	Remarks []Problem `yaml:"-"`
	// Bare reports secrets that are written in the files instead of environment variables.
	Bare []Problem `yaml:"-"`

	form    *Config // as it is written, with all files that it includes, defaults filled in
	opened  []named // files opened at start, not by loading
	outputs []named // files and directories that are written
	written form.Written
	uses    map[string]int  // of form.Reader
	values  []Value         // of lists
	own     map[string]bool // files named by the configuration
	lined   map[string]int  // files of lines, by how they end
}

// ClientIP configures how the address of a client is determined behind
// proxies.
type ClientIP struct {
	// TrustedProxies are the networks of proxies whose header is trusted.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies"`
	// Header in which trusted proxies send the address of the client.
	Header string `yaml:"header" jsonschema:"default=X-Forwarded-For"`
	// IPv6Prefix is the number of bits of an IPv6 address that identify a client.
	IPv6Prefix int `yaml:"ipv6_prefix" jsonschema:"default=64,minimum=1,maximum=128"`
}

// Privacy configures the hashing of keys and of addresses in logs.
type Privacy struct {
	// HashSecret is the secret for hashing keys: they leave the process only as HMAC-SHA256.
	HashSecret string `yaml:"hash_secret" jsonschema:"default=" hidden:"true"`
	// PreviousSecret is the secret that HashSecret replaces, or none if there was none: counts under it stay valid. Keep it for as long as the longest window of all limits.
	Previous string `yaml:"previous_secret" jsonschema:"default=" hidden:"(the former one, hidden as well)"`
	// LogClient is how client addresses are logged: full, network (the first 24 bits of IPv4 and 48 of IPv6), hashed, or none.
	LogClient LogClient `yaml:"log_client" jsonschema:"default=full,enum=full,enum=network,enum=hashed,enum=none"`

	Rotates bool `yaml:"-"` // limits are claimed under the keys of both secrets
}

// Defaults holds the defaults of limits and routes.
type Defaults struct {
	// Mode: enforce refuses requests over a limit, shadow only counts what would be refused, off disables limits.
	Mode Mode `yaml:"mode" jsonschema:"default=enforce,enum=enforce,enum=shadow,enum=off"`
	// OnStoreFailure is the policy while the store is unreachable: local counts this process's share of the limit in memory.
	OnStoreFailure OnStoreFailure `yaml:"on_store_failure" jsonschema:"default=local,enum=allow,enum=deny,enum=local"`
	// Headers is the style of the rate limit fields in responses.
	Headers string `yaml:"headers" jsonschema:"default=ietf,enum=ietf,enum=x-ratelimit,enum=none"`
	// Expose makes limits visible to clients in header fields and refusals.
	Expose bool `yaml:"expose" jsonschema:"default=true"`
	// NewKeys limits how many requests with keys not seen recently one client address may send to each route, as COUNT/WINDOW: 1000/1m; or none.
	Guard string `yaml:"new_keys" jsonschema:"default=none,pattern=^(none|\\s*[0-9]+(/([0-9]*(ms|s|m|h|d|w))([0-9]+(ms|s|m|h|d|w))*| +per +[A-Za-z]+)\\s*)$"`
	// Limits are the names of limits at the top of the file that all routes have, but those with limits: none.
	Limits list `yaml:"limits,omitempty"`
	// Lists are the names of lists that all routes have, but those with lists: none.
	Lists list `yaml:"lists,omitempty"`

	// NewKeys is the rate of requests with new keys for each client, valid for a limiter.KeyGuard; the zero Rate means no
	// limit.
	NewKeys limiter.Rate `yaml:"-"`
}

// List is a list of keys that bypass the limits, are denied, or alone are let through.
type List struct {
	// Key is the key whose values are listed: the name of a key, an origin, or an inline key.
	Of *keyForm `yaml:"key" jsonschema:"required"`
	// Values are the keys as clients send them; for client_ip networks too.
	Values list `yaml:"values,omitempty"`
	// File with one value per line, relative to this file; # begins a comment. It is reloaded when it changes.
	File string `yaml:"file,omitempty" jsonschema:"default="`
	// Match: exact compares whole keys. With prefix, a value stands for all keys that begin with it, such as +4915 for numbers.
	Match string `yaml:"match" jsonschema:"default=exact,enum=exact,enum=prefix"`
	// Action: bypass lets requests pass all limits of the route, deny refuses them with 403, only refuses all others with 403.
	Action Action `yaml:"action" jsonschema:"required,enum=bypass,enum=deny,enum=only"`

	Name    string    `yaml:"-"` // token-safe
	Key     *key.Spec `yaml:"-"`
	Members *key.List `yaml:"-"`
}

// Prices is a list of what requests cost.
type Prices struct {
	// File has one PREFIX,TYPE,PRICE per line, relative to this file: +4915,mobile,0.075. The row with the longest prefix counts that has the type of the line, or * for all; a number without a row costs the dearest price. Or MODEL,INPUT,CACHED,OUTPUT of what a million tokens cost: gpt-4o,2.5,1.25,10, for all models whose names begin so. # begins a comment. It is reloaded when it changes.
	File string `yaml:"file,omitempty" jsonschema:"default="`
	// Rows are such lines, in place of a file.
	Rows list `yaml:"rows,omitempty"`
	// Key is the phone number that a request is for, or the model.
	Of *keyForm `yaml:"key" jsonschema:"required"`
	// Unit is the currency, for people.
	Unit string `yaml:"unit,omitempty"`
	// Decimals of prices and budgets, which are counted exactly: the largest budget is 21474.83647 with 5, ten times that with 4. Others are other counts, which begin with nothing spent.
	Decimals int `yaml:"decimals" jsonschema:"default=5,minimum=0,maximum=6"`

	Name  string      `yaml:"-"`
	Key   *key.Spec   `yaml:"-"` // the number, or the model
	Table *key.Prices `yaml:"-"` // an amount of 1 is 10^-Decimals of the unit
}

// Route is a route.
type Route struct {
	// Name of the route in logs, metrics and the store; derived from the path when not given.
	Name string `yaml:"name,omitempty" jsonschema:"pattern=^[A-Za-z][A-Za-z0-9_.-]*$"`
	// Match selects the requests of the route.
	Match Match `yaml:"match" jsonschema:"required"`
	// Upstream is the name of an upstream, or a URL, or echo. A route has this, or redirect, or respond.
	UpstreamName string `yaml:"upstream,omitempty"`
	// Redirect redirects clients to another URL.
	Redirect *Redirect `yaml:"redirect,omitempty"`
	// Respond is a fixed response.
	Respond *Respond `yaml:"respond,omitempty"`
	// Rewrite changes the path and header fields of requests and responses.
	RewriteForm *Rewrite `yaml:"rewrite,omitempty"`
	// WebSocket allows upgrades to websocket; the data of the connection is not limited.
	WebSocket bool `yaml:"websocket" jsonschema:"default=false"`
	// EncodedSlash is the handling of %2F in a path, which some servers treat as a slash and others do not: refuse answers 400; keep matches and forwards it as part of its segment, for an upstream that does the same.
	EncodedSlash EncodedSlash `yaml:"encoded_slash" jsonschema:"default=refuse,enum=refuse,enum=keep"`
	// MergeSlashes merges repeated slashes of the path. false forwards them as they were sent, for paths with a URL in them; the path is matched and counted with one slash all the same.
	MergeSlashes bool `yaml:"merge_slashes" jsonschema:"default=true"`
	// FormBesideQuery is the handling of a form in the body when the route reads a parameter from the query: refuse answers 400, because servlets, Rack and others would read a parameter of that name from the form as well; ignore is for an upstream that reads only the query. A key with from: query:NAME and must_equal: form:NAME compares the two instead.
	FormBesideQuery FormBesideQuery `yaml:"form_beside_query" jsonschema:"default=refuse,enum=refuse,enum=ignore"`
	// Mode of the route: shadow and off override the mode of its limits, enforce is the default for limits without a mode.
	Mode Mode `yaml:"mode,omitempty" jsonschema:"enum=enforce,enum=shadow,enum=off"`
	// Body limits the size of request bodies.
	Body *bodyForm `yaml:"body,omitempty"`
	// Lists to check before the limits; deny and only take precedence over bypass. Those of defaults are added, unless one is none.
	ListNames list `yaml:"lists,omitempty"`
	// LogPath is how paths are logged: full, except for parameters that are keys; or redacted, without any parameters, numbers and addresses. A path that no route matches is always redacted.
	LogPath LogPath `yaml:"log_path" jsonschema:"default=full,enum=full,enum=redacted"`
	// CountPreflight makes limits count CORS preflights too (OPTIONS with Origin and Access-Control-Request-Method, and only fields that browsers send with them). A preflight that carries a key of the route in its path, or a query parameter with the name of one, is always counted: exclude it by methods.
	CountPreflight bool `yaml:"count_preflight" jsonschema:"default=false"`
	// NewKeys limits how many requests with keys not seen recently one client address may send, as COUNT/WINDOW, or none; that of defaults when not given. The mode is that of the route.
	Guard string `yaml:"new_keys,omitempty" jsonschema:"pattern=^(none|\\s*[0-9]+(/([0-9]*(ms|s|m|h|d|w))([0-9]+(ms|s|m|h|d|w))*| +per +[A-Za-z]+)\\s*)$"`
	// Limits are decided together in one atomic step: a request passes all of them, or takes permits from none. A name stands for a limit at the top of the file, with the count that all routes have which name it. Those of defaults are added, unless one is none.
	LimitForms []*Limit `yaml:"limits,omitempty"`
	// RefundOn lists the outcomes after which the permits of a request are refunded.
	RefundForm *Refund `yaml:"refund_on,omitempty"`
	// Usage is where the upstream's response says what the request has used: openai, anthropic, gemini or ollama, or total; limits with cost: {reserve: ...} then count that.
	UsageForm *Usage `yaml:"usage,omitempty"`
	// Idempotency lets clients repeat a request without being counted again.
	Idempotency *Idempotency `yaml:"idempotency,omitempty"`
	// Reject is the response to a refused request.
	Reject Reject `yaml:"reject"`
	// Errors are the texts of other errors of this route, by status: 400 to 599, 4xx or 5xx.
	ErrorTexts map[string]*ErrorText `yaml:"errors,omitempty"`

	Upstream    *Upstream      `yaml:"-"` // nil exactly if Redirect or Respond is set
	Rewrite     Rewrite        `yaml:"-"`
	MaxBody     int64          `yaml:"-"` // maximum size of a request body in bytes; 0 for no limit
	Limits      []*Limit       `yaml:"-"` // in the order of the file; may be empty
	Lists       []*List        `yaml:"-"` // in the order of the file
	RefundOn    Refund         `yaml:"-"`
	Usage       *Usage         `yaml:"-"` // nil: no response says what was used
	Errors      map[int]Reject `yaml:"-"` // by status; nil: those of the Config
	NewKeys     limiter.Rate   `yaml:"-"` // like that of Defaults
	NewKeysMode Mode           `yaml:"-"`
	Position    Position       `yaml:"-"`

	form *Route // as it is written
}

// bodyForm limits the size of request bodies.
type bodyForm struct {
	// Max is the maximum size of a body; a larger one is answered with 413. When body is not given, the size is not limited, except to 64KiB for a body that a key is read from.
	Max size `yaml:"max" jsonschema:"required"`
}

// Match selects the requests of a route.
type Match struct {
	// Methods are one or several methods in upper case; all when not given.
	Methods list `yaml:"methods,omitempty" jsonschema:"enum=GET,enum=HEAD,enum=POST,enum=PUT,enum=PATCH,enum=DELETE,enum=OPTIONS,enum=TRACE,enum=QUERY" empty:"no method is given; write for example [GET, POST], or leave it out for all"`
	// Scheme is that by which the client sent the request: that of the listener, or what a trusted proxy says in X-Forwarded-Proto; both when not given.
	Scheme string `yaml:"scheme,omitempty" jsonschema:"enum=http,enum=https"`
	// Host is exact or *.example.com; all when not given.
	Host string `yaml:"host,omitempty"`
	// Path is exact, or has {parameters}, {parameters:regexp}, or ends with /*.
	Path string `yaml:"path,omitempty" jsonschema:"pattern=^/"`
	// Headers that the request must have: the exact value, or * for any.
	Headers map[string]string `yaml:"headers,omitempty"`
	// Query parameters that the request must have exactly once: the value, or * for any.
	Query map[string]string `yaml:"query,omitempty"`
	// Domain is that of the descriptors that Envoy asks about at listen.decide.grpc, instead of a path.
	Domain string `yaml:"domain,omitempty"`
	// Descriptor has all entries of a descriptor of the domain: the exact value, a prefix that ends with *, or * for any.
	Descriptor map[string]string `yaml:"descriptor,omitempty"`

	Params []string `yaml:"-"` // the names in Path, in order; "*" for /*
}

// Redirect is a redirect.
type Redirect struct {
	// To is the target, a URL or a path. {host}, {path} and {query} (with its question mark) are replaced by those of the request.
	To string `yaml:"to" jsonschema:"required"`
	// Status is 301 or 308 (permanent), 302 or 307 (temporary), or 303 (see other, with GET); 307 and 308 preserve the method.
	Status int `yaml:"status" jsonschema:"default=307,minimum=301,maximum=308"`
}

// Respond is a fixed response.
type Respond struct {
	// Status of the response.
	Status int `yaml:"status" jsonschema:"default=200,minimum=200,maximum=599"`
	// Body of the response.
	Body string `yaml:"body" jsonschema:"default="`
	// ContentType of the body.
	ContentType string `yaml:"content_type" jsonschema:"default=text/plain; charset=utf-8"`
	// Additional headers of the response.
	Headers map[string]string `yaml:"headers,omitempty"`
}

// Rewrite changes the path and header fields of requests and responses.
type Rewrite struct {
	// StripPrefix is removed from the beginning of the path, if present.
	StripPrefix string `yaml:"strip_prefix,omitempty" jsonschema:"pattern=^/"`
	// AddPrefix is prepended to the path.
	AddPrefix string `yaml:"add_prefix,omitempty" jsonschema:"pattern=^/"`
	// Headers changes the header fields of the request to the upstream.
	Request Fields `yaml:"headers,omitempty"`
	// ResponseHeaders changes the header fields of the response to the client.
	Response Fields `yaml:"response_headers,omitempty"`

	Host string `yaml:"-"` // of the forwarded request; empty: that of the client
}

// Fields sets and removes header fields.
type Fields struct {
	// Set headers to these values; existing ones are replaced.
	Set map[string]string `yaml:"set,omitempty"`
	// Remove headers by name.
	Remove list `yaml:"remove,omitempty"`
}

// Refund lists the outcomes after which the permits of a request are
// refunded.
type Refund struct {
	// Status of the upstream's response: 404, 5xx, 500-503.
	Status Statuses `yaml:"status,omitempty" empty:"no status is given; write for example [5xx], or leave it out"`
	// Errors are kinds of upstream failures.
	Errors []Fault `yaml:"errors,omitempty" jsonschema:"enum=timeout,enum=connect,enum=reset,enum=cut,enum=bad_response"`
	// Header of the upstream's response whose presence requests the refund; it is not passed on to clients.
	Header string `yaml:"header,omitempty"`
}

// Idempotency lets clients repeat a request without being counted again. The upstream must support idempotency keys as well, or it
// processes the request twice.
type Idempotency struct {
	// Header with the idempotency key, which is the same in a request and its repeats; they have the same target, body and Authorization.
	Header string `yaml:"header" jsonschema:"default=Idempotency-Key"`
	// Life is how long a request is remembered.
	Life duration `yaml:"life" jsonschema:"default=1d"`
	// Repeats is how many repeats are not counted.
	Repeats int64 `yaml:"repeats" jsonschema:"default=5,minimum=1,maximum=1000"`
}

// Near returns "did you mean X?" with the choice that is nearest to word; "" if none is
// similar.
func Near(word string, choices []string) string { return form.Near(word, choices) }

// Alerts configures the webhook for exhausted limits.
type Alerts struct {
	// Webhook is the URL to which alerts are sent with POST; no alerts are sent when it is empty. It is treated as a secret.
	Webhook string `yaml:"webhook" jsonschema:"default=" hidden:"https://hidden.invalid/"`
	// Secret signs alerts with HMAC-SHA256.
	Secret string `yaml:"secret" jsonschema:"default=" hidden:"true"`
	// Refused raises an alert when a limit refuses this many requests within one minute, on all nodes together, or this part of those that it decides, 5% for example, and at least 10.
	Refused Threshold `yaml:"refused" jsonschema:"default=100"`
	// Used raises an alert when a key has used this part of a rate whose count is 100 or more, or of a budget. Several parts, such as [50%, 80%, 100%], raise one each, once in the window of the rate.
	Parts list `yaml:"used,single" jsonschema:"default=80%,pattern=^[1-9][0-9]*%$" empty:"there is no percentage; write for example 80%, or [50%, 80%, 100%]"`
	// Conversion raises an alert when fewer of the requests of a key than this part, 35% for example, are returned by return_on of the limit: within its longest window, of at least as many as the rate allows. None is raised when not given.
	Returned string `yaml:"conversion,omitempty" jsonschema:"pattern=^[1-9][0-9]?%$"`
	// Repeat is the minimum time between alerts about the same limit.
	Repeat duration `yaml:"repeat" jsonschema:"default=1h"`

	Used       []int64 `yaml:"-"` // percentages, 1 to 100, ascending
	Conversion int64   `yaml:"-"` // percentage, 1 to 99; 0 for any
}

// Reload selects the source of the configuration.
type Reload struct {
	// Source of routes, limits and everything else that can be reloaded: file is this file; redis is the configuration that weir push sends to all Weirs, and this file until something is pushed.
	Source Source `yaml:"source" jsonschema:"default=file,enum=file,enum=redis"`
	// Keep is a file, relative to this one, for a copy of the pushed configuration, which is used at a start while Redis is unreachable. No copy is kept when not given.
	Keep string `yaml:"keep" jsonschema:"default="`
}

// AccessLog configures the access log.
type AccessLog struct {
	// Format of the lines: json, combined (that of Apache and nginx, without queries), or none.
	Format LogFormat `yaml:"format" jsonschema:"default=json,enum=json,enum=combined,enum=none"`
	// File for the access log, relative to this one, instead of standard error. SIGUSR1 reopens it, for log rotation. It does not depend on --log-level.
	File string `yaml:"file" jsonschema:"default="`
	// Fields of a JSON line, instead of the standard ones; standard stands for all of these. Time, level and message are always written.
	Fields list `yaml:"fields" jsonschema:"enum=standard,enum=request_id,enum=route,enum=method,enum=host,enum=path,enum=status,enum=bytes,enum=duration_ms,enum=client,enum=upstream,enum=upstream_ms,enum=shadow,enum=limit,enum=wait_ms,enum=rate,enum=key,enum=masked,enum=banned,enum=ban_began,enum=also,enum=cached_refusal,enum=new_keys,enum=repeated,enum=list,enum=refunded,enum=fallback,enum=error,enum=keys,enum=decided_at,enum=trace_id,enum=sample,enum=listener,enum=challenge,enum=used,enum=proto,enum=scheme,enum=own_ms,enum=waited_ms,enum=user_agent,enum=referer"`
	// Sample logs one in so many of the successful requests. Refusals, failures, and requests that a shadow limit would have refused are always logged.
	Sample int `yaml:"sample" jsonschema:"default=1,minimum=1,maximum=1000000"`
}

// Traces configures the export of traces (OpenTelemetry).
type Traces struct {
	// Endpoint is the URL of a collector for OTLP over HTTP; /v1/traces is added if it has no path. Tracing is off when it is empty.
	Endpoint string `yaml:"endpoint" jsonschema:"default="`
	// Headers for the collector, an API key for example. Values are treated as secrets.
	Fields map[string]string `yaml:"headers,omitempty" hidden:"true"`
	// Sample is the part of requests without a parent that is traced.
	Share string `yaml:"sample" jsonschema:"default=1%,pattern=^[0-9]+([.][0-9]+)?%$"`
	// Parent selects whose traceparent is used, which determines whether a request is sampled and the parent of its spans: trusted, that of client_ip.trusted_proxies; any, that of every client; none, each request starts a trace.
	Parent TraceParent `yaml:"parent" jsonschema:"default=trusted,enum=trusted,enum=any,enum=none"`
	// Service is the service.name of this Weir.
	Service string `yaml:"service" jsonschema:"default=weir"`

	Headers map[string]string `yaml:"-"`
	Sample  float64           `yaml:"-"` // 0 to 1
}

// A Store is where counts are kept.
type Store string

// The stores.
const (
	StoreMemory Store = "memory" // one process
	StoreRedis  Store = "redis"  // shared by several processes
)

// LogClient is how client addresses are logged.
type LogClient string

// The ways to show an address.
const (
	ClientFull    LogClient = "full"
	ClientNetwork LogClient = "network" // 24 bits of IPv4, 48 of IPv6
	ClientHashed  LogClient = "hashed"  // hash of the address that limits count by
	ClientNone    LogClient = "none"
)

// LogPath is how the path of a matched request is logged.
type LogPath string

// The ways to show a path.
const (
	PathFull     LogPath = "full"     // without parameters that are keys
	PathRedacted LogPath = "redacted" // without parameters, numbers and addresses
)

// A Mode is the mode of a limit.
type Mode string

// The modes of a limit.
const (
	Enforce Mode = "enforce" // refuses requests
	Shadow  Mode = "shadow"  // only counts and reports refusals
	Off     Mode = "off"     // disabled
)

// An OnStoreFailure is the policy of a limit while its store is unreachable.
type OnStoreFailure string

// Values of OnStoreFailure.
const (
	Allow OnStoreFailure = "allow" // the request passes
	Deny  OnStoreFailure = "deny"  // the request is refused
	Local OnStoreFailure = "local" // this process counts its share in memory
)

// A Balance is a load balancing method.
type Balance string

// The balances.
const (
	BalanceRoundRobin  Balance = "round_robin"
	BalanceLeastLoaded Balance = "least_loaded"
	BalanceHash        Balance = "hash" // by a key; round robin for requests without it
)

// A Protocol is a version of HTTP.
type Protocol string

// The protocols that targets can speak.
const (
	ProtocolHTTP1 Protocol = "http1"
	ProtocolH2    Protocol = "h2"  // all targets are https
	ProtocolH2C   Protocol = "h2c" // no target is https
)
