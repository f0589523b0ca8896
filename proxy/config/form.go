package config

// The types of the form files are the YAML as it is written: one struct a mapping,
// in the order in which fields are best read. Tags say what a field is called,
// whether it is required, what it may be, and its default; the decoder and the
// JSON Schema both go by them. Comments become descriptions in the schema.

// file is a whole config file. An included file may have keys, lists,
// upstreams and routes only.
type file struct {
	// Version of the format.
	Version int `yaml:"version" jsonschema:"default=1,minimum=1,maximum=1"`
	// Include names more files whose keys, lists, upstreams and routes belong to this one, relative to this file; patterns with * are allowed.
	Include list `yaml:"include"`
	// Listen says where clients connect.
	Listen listenForm `yaml:"listen"`
	// Admin says where operators connect.
	Admin adminForm `yaml:"admin"`
	// Store is where counts live: in this process, or in a Redis that several proxies share.
	Store string `yaml:"store" jsonschema:"default=memory,enum=memory,enum=redis"`
	// Redis says how to reach the store when it is redis.
	Redis redisForm `yaml:"redis"`
	// Reload says where the configuration comes from.
	Reload reloadForm `yaml:"reload"`
	// ClientIP says whose word counts about where a request comes from.
	ClientIP clientIPForm `yaml:"client_ip"`
	// Privacy says what may leave the process.
	Privacy privacyForm `yaml:"privacy"`
	// Defaults are for limits that do not say otherwise.
	Defaults defaultsForm `yaml:"defaults"`
	// Alerts say who is told when limits are used up.
	Alerts alertsForm `yaml:"alerts"`
	// AccessLog says what is written of each request, and where.
	AccessLog accessLogForm `yaml:"access_log"`
	// Traces say where traces of requests are sent, by OpenTelemetry's protocol.
	Traces tracesForm `yaml:"traces"`
	// JWT says which tokens keys from jwt: believe.
	JWT *jwtForm `yaml:"jwt,omitempty"`
	// Keys are named ways to tell clients apart.
	Keys map[string]*keyForm `yaml:"keys,omitempty"`
	// Lists are keys that are treated apart.
	Lists map[string]*listForm `yaml:"lists,omitempty"`
	// Upstreams are named places where requests go.
	Upstreams map[string]*upstreamForm `yaml:"upstreams,omitempty"`
	// Routes say what happens to which requests; the most specific one wins.
	Routes []*routeForm `yaml:"routes,omitempty"`
}

// clientIPForm says whose word counts about where a request comes from.
type clientIPForm struct {
	// TrustedProxies are the networks whose header is believed.
	TrustedProxies list `yaml:"trusted_proxies"`
	// Header in which trusted proxies name the client.
	Header string `yaml:"header" jsonschema:"default=X-Forwarded-For"`
	// IPv6Prefix is how many bits of an IPv6 address make one client.
	IPv6Prefix int `yaml:"ipv6_prefix" jsonschema:"default=64,minimum=1,maximum=128"`
}

// privacyForm says what may leave the process.
type privacyForm struct {
	// HashSecret makes keys leave the process only as HMAC-SHA256 under it.
	HashSecret secret `yaml:"hash_secret" jsonschema:"default="`
	// PreviousSecret is the one that HashSecret replaces, or none: what was counted under it counts on. Keep it for as long as the longest window of all limits.
	PreviousSecret secret `yaml:"previous_secret" jsonschema:"default="`
	// LogClient is how the log shows the address of a client: full, network (the first 24 bits of IPv4 and 48 of IPv6), hashed, or none.
	LogClient string `yaml:"log_client" jsonschema:"default=full,enum=full,enum=network,enum=hashed,enum=none"`
}

// defaultsForm is for limits that do not say otherwise.
type defaultsForm struct {
	// Mode: enforce answers refusals, shadow only counts them, off asks no limit.
	Mode string `yaml:"mode" jsonschema:"default=enforce,enum=enforce,enum=shadow,enum=off"`
	// OnStoreFailure is what happens when the store cannot answer: local counts this process's share in memory.
	OnStoreFailure string `yaml:"on_store_failure" jsonschema:"default=local,enum=allow,enum=deny,enum=local"`
	// Headers is the style in which clients are told about limits.
	Headers string `yaml:"headers" jsonschema:"default=ietf,enum=ietf,enum=x-ratelimit,enum=none"`
	// Expose says whether clients may learn of a limit.
	Expose bool `yaml:"expose" jsonschema:"default=true"`
	// NewKeys is how many requests with keys that nobody has sent lately one client address may send to each route, as COUNT/WINDOW: 1000/1m; or none for any number.
	NewKeys string `yaml:"new_keys" jsonschema:"default=none,pattern=^(none|\\s*[0-9]+/([0-9]+(ms|s|m|h|d|w))+\\s*)$"`
}

// listForm is keys that are treated apart.
type listForm struct {
	// Key says what stands in the list: the name of a key, an origin, or a key written in place.
	Key *keyForm `yaml:"key" jsonschema:"required"`
	// Values are the keys, as clients send them; for client_ip networks too.
	Values list `yaml:"values,omitempty"`
	// File with one value a line, relative to this file; # begins a comment. A change is noticed.
	File string `yaml:"file,omitempty" jsonschema:"default="`
	// Action: bypass lets requests pass all limits of the route, deny refuses them with 403.
	Action string `yaml:"action" jsonschema:"required,enum=bypass,enum=deny"`
}

// routeForm is what happens to the requests that match.
type routeForm struct {
	// Name of the route in logs, metrics and the store; made of the path when not given.
	Name string `yaml:"name,omitempty" jsonschema:"pattern=^[A-Za-z][A-Za-z0-9_.-]*$"`
	// Match says which requests the route is for.
	Match matchForm `yaml:"match" jsonschema:"required"`
	// Upstream is the name of an upstream, or a URL, or echo. A route has this, or redirect, or respond.
	Upstream string `yaml:"upstream,omitempty"`
	// Redirect sends clients to another place.
	Redirect *redirectForm `yaml:"redirect,omitempty"`
	// Respond is one answer for all requests.
	Respond *respondForm `yaml:"respond,omitempty"`
	// Rewrite says what the upstream and the client see otherwise than it was sent.
	Rewrite *rewriteForm `yaml:"rewrite,omitempty"`
	// WebSocket says whether upgrades to websocket are forwarded; what flows then is not limited.
	WebSocket bool `yaml:"websocket" jsonschema:"default=false"`
	// EncodedSlash says what becomes of a path with %2F, which some servers take for a slash and others do not: refuse answers 400; keep matches and forwards it as part of its segment, for an upstream that does the same.
	EncodedSlash string `yaml:"encoded_slash" jsonschema:"default=refuse,enum=refuse,enum=keep"`
	// FormBesideQuery says what becomes of a form in the body of a request of which something is read from the query: refuse answers 400, for servlets, Rack and others would find a parameter of that name in the form too; ignore is for an upstream that reads the query alone. A key that has must_equal: form:NAME beside from: query:NAME compares the two instead.
	FormBesideQuery string `yaml:"form_beside_query" jsonschema:"default=refuse,enum=refuse,enum=ignore"`
	// Mode of the route: shadow and off hold for all its limits whatever they say, enforce for those that say nothing.
	Mode string `yaml:"mode,omitempty" jsonschema:"enum=enforce,enum=shadow,enum=off"`
	// Body bounds the bodies of requests.
	Body *bodyForm `yaml:"body,omitempty"`
	// Lists to look the request up in, before its limits; deny goes before bypass.
	Lists list `yaml:"lists,omitempty"`
	// LogPath is how the log shows the path of a request: full, but for parameters that are keys, or redacted, without any parameter and whatever looks like a number or an address. A path that no route matches is always redacted.
	LogPath string `yaml:"log_path" jsonschema:"default=full,enum=full,enum=redacted"`
	// CountPreflight says whether the limits are asked about preflights of browsers too (OPTIONS with Origin and Access-Control-Request-Method, without anything that a browser does not send with them). One in which a key of the route stands, in its path or query for example, is counted in any case: keep it apart by methods.
	CountPreflight bool `yaml:"count_preflight" jsonschema:"default=false"`
	// NewKeys is how many requests with keys that nobody has sent lately one client address may send, as COUNT/WINDOW; or none for any number; that of defaults when not given. The mode is that of the route.
	NewKeys string `yaml:"new_keys,omitempty" jsonschema:"pattern=^(none|\\s*[0-9]+/([0-9]+(ms|s|m|h|d|w))+\\s*)$"`
	// Limits are all asked in one step: all grant, or nothing is taken.
	Limits []*limitForm `yaml:"limits,omitempty"`
	// RefundOn says after which outcomes a request gives back what it took.
	RefundOn *refundForm `yaml:"refund_on,omitempty"`
	// Idempotency lets clients repeat a request without being counted again.
	Idempotency *idempotencyForm `yaml:"idempotency,omitempty"`
	// Reject is the answer when a limit refuses.
	Reject rejectForm `yaml:"reject"`
}

// bodyForm bounds the bodies of requests.
type bodyForm struct {
	// Max is how long one may be; a longer one is answered with 413. When body is not given, any length is taken, but of a body that a key is read from no more than 64KiB.
	Max size `yaml:"max" jsonschema:"required"`
}

// matchForm says which requests a route is for.
type matchForm struct {
	// Methods are one or several, in capitals; all when not given.
	Methods list `yaml:"methods,omitempty" jsonschema:"enum=GET,enum=HEAD,enum=POST,enum=PUT,enum=PATCH,enum=DELETE,enum=OPTIONS,enum=TRACE,enum=QUERY"`
	// Host is exact or *.example.com; all when not given.
	Host string `yaml:"host,omitempty"`
	// Path is exact, or has {parameters}, {parameters:regexp}, or ends with /*.
	Path string `yaml:"path" jsonschema:"required,pattern=^/"`
	// Headers that the request must have: the value, or * for any.
	Headers map[string]*string `yaml:"headers,omitempty"`
	// Query parameters that the request must have, once: the value, or * for any.
	Query map[string]*string `yaml:"query,omitempty"`
}

// redirectForm sends clients to another place.
type redirectForm struct {
	// To is where: a URL or a path. {host}, {path} and {query} (with its question mark) are those of the request.
	To string `yaml:"to" jsonschema:"required"`
	// Status is 301 or 308 for good, 302 or 307 for now, 303 to fetch the answer there; 307 and 308 keep the method.
	Status int `yaml:"status" jsonschema:"default=307,minimum=301,maximum=308"`
}

// respondForm is one answer for all requests.
type respondForm struct {
	// Status of the answer.
	Status int `yaml:"status" jsonschema:"default=200,minimum=200,maximum=599"`
	// Body of the answer.
	Body string `yaml:"body" jsonschema:"default="`
	// ContentType of the body.
	ContentType string `yaml:"content_type" jsonschema:"default=text/plain; charset=utf-8"`
	// Headers that the answer has besides.
	Headers map[string]*string `yaml:"headers,omitempty"`
}

// rewriteForm says what the upstream and the client see otherwise than it was
// sent.
type rewriteForm struct {
	// StripPrefix is taken from the beginning of the path, if that has it.
	StripPrefix string `yaml:"strip_prefix,omitempty" jsonschema:"pattern=^/"`
	// AddPrefix is put before the path.
	AddPrefix string `yaml:"add_prefix,omitempty" jsonschema:"pattern=^/"`
	// Headers of the request on its way to the upstream.
	Headers *fieldsForm `yaml:"headers,omitempty"`
	// ResponseHeaders are those of the answer on its way to the client.
	ResponseHeaders *fieldsForm `yaml:"response_headers,omitempty"`
}

// fieldsForm says which headers are added, replaced and taken out.
type fieldsForm struct {
	// Set headers to these values; those of the same name are replaced.
	Set map[string]*string `yaml:"set,omitempty"`
	// Remove the headers of these names.
	Remove list `yaml:"remove,omitempty"`
}

// refundForm says after which outcomes a request gives back what it took.
type refundForm struct {
	// Status of the upstream's answer: 404, 5xx, 500-503.
	Status codes `yaml:"status,omitempty"`
	// Errors are ways in which the upstream may fail.
	Errors list `yaml:"errors,omitempty" jsonschema:"enum=timeout,enum=connect,enum=reset,enum=cut,enum=bad_response"`
	// Header of the upstream's answer that asks for it by being there; clients do not see it.
	Header string `yaml:"header,omitempty"`
}

// idempotencyForm lets clients repeat a request without being counted again. The upstream must know the mark, or it does its work again.
type idempotencyForm struct {
	// Header in which a client marks a request and its repeats, which have the same target and body.
	Header string `yaml:"header" jsonschema:"default=Idempotency-Key"`
	// Life is how long a request is remembered.
	Life duration `yaml:"life" jsonschema:"default=1d"`
	// Repeats is how many of them do not count.
	Repeats int `yaml:"repeats" jsonschema:"default=5,minimum=1,maximum=1000"`
}

// rejectForm is the answer when a limit refuses.
type rejectForm struct {
	// Status of the answer.
	Status int `yaml:"status" jsonschema:"default=429,minimum=400,maximum=599"`
	// Detail is a sentence for people; {retry_after} stands for seconds, {limit} and {request_id} for what they say.
	Detail string `yaml:"detail" jsonschema:"default=Too many requests. Try again in {retry_after} s."`
	// Headers that the answer has besides.
	Headers map[string]*string `yaml:"headers,omitempty"`
	// Body in place of a problem (RFC 9457), with the same placeholders.
	Body string `yaml:"body,omitempty"`
	// ContentType of the body; text/plain in UTF-8 when not given. What stands for a placeholder is escaped for JSON and HTML.
	ContentType string `yaml:"content_type,omitempty"`
}

// A shorthand has a short form: whatever is not a mapping is decoded into the
// field that short names.
type shorthand interface{ short() string }

func (*keyForm) short() string      { return "Text" }
func (*normalForm) short() string   { return "As" }
func (*missingForm) short() string  { return "Policy" }
func (*upstreamForm) short() string { return "Text" }
func (*targetForm) short() string   { return "URL" }
