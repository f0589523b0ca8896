package config

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"net/url"

	"github.com/weir-proxy/weir/proxy/key"
)

// Listen configures the listeners for clients.
type Listen struct {
	// HTTP is the address for plain HTTP, host:port, or none.
	HTTP string `yaml:"http" jsonschema:"default=:8080"`
	// HTTPS is the address for HTTP over TLS, host:port, or none.
	HTTPS string `yaml:"https" jsonschema:"default=none"`
	// RedirectHTTPS answers requests without TLS with 308 and the same URL with https, except those for /.well-known/acme-challenge/. A request for which a trusted proxy sends X-Forwarded-Proto: https has TLS.
	RedirectHTTPS bool `yaml:"redirect_https" jsonschema:"default=false"`
	// HTTPSPort is the port of that URL, if clients do not use that of https: 443 in front of a container for example.
	HTTPSPort int `yaml:"https_port,omitempty" jsonschema:"minimum=1,maximum=65535"`
	// TLS configures the certificates for HTTPS.
	Files *tlsForm `yaml:"tls,omitempty"`
	// H2C allows HTTP/2 without TLS, with prior knowledge.
	H2C bool `yaml:"h2c" jsonschema:"default=false"`
	// ProxyProtocol lists the networks of load balancers that send the PROXY protocol, version 1 or 2.
	ProxyProtocol []netip.Prefix `yaml:"proxy_protocol"`
	// Timeouts for clients.
	Timeouts ListenTimeouts `yaml:"timeouts"`
	// MaxHeader is the maximum size of a request header.
	MaxHeader size `yaml:"max_header" jsonschema:"default=64KiB"`
	// MaxBuffered is the maximum memory for all request bodies that are buffered to read a key from them: what their buffers take, filled or not. One client address may use an eighth of it, and the last eighth is only for bodies of up to 4 KiB. Beyond it such requests are answered with 503.
	MaxBuffered size `yaml:"max_buffered" jsonschema:"default=128MiB"`
	// ReusePort allows another weir to listen on the same addresses (SO_REUSEPORT), so that it can take over before this one stops. Without it a second one fails to start.
	ReusePort bool `yaml:"reuse_port" jsonschema:"default=false"`
	// Drain configures the shutdown.
	Drain Drain `yaml:"drain"`
	// Decide lets other proxies ask about requests that they forward themselves.
	Decide *Decide `yaml:"decide,omitempty"`

	TLS  []Pair `yaml:"-"` // at least one if HTTPS is set and ACME is nil
	ACME *ACME  `yaml:"-"` // nil for none
}

// Decide configures the listener on which other proxies ask for decisions.
type Decide struct {
	// HTTP is the address, host:port, or none.
	HTTP string `yaml:"http,omitempty"`
	// GRPC is the address for Envoy's rate limit service (envoy.service.ratelimit.v3), host:port, or none.
	GRPC string `yaml:"grpc" jsonschema:"default=none"`
	// Dialect is the kind of proxy that asks at /decide; one of another kind asks at /decide/DIALECT. It is required with http.
	Dialect Dialect `yaml:"dialect,omitempty" jsonschema:"enum=nginx,enum=traefik,enum=caddy,enum=apisix,enum=haproxy"`
	// Trusted lists the addresses and networks of the proxies that may ask; those of this machine when it is empty and there is neither client_ca nor token.
	Trusted []netip.Prefix `yaml:"trusted,omitempty"`
	// Token is what the proxies must send in X-Weir-Token.
	Token string `yaml:"token" jsonschema:"default=" hidden:"true"`
	// TLS is the certificate of the listener.
	Files *Pair `yaml:"tls,omitempty"`
	// ClientCA is a PEM file with authorities. With it, the proxies must show a certificate signed by one of them.
	ClientCA string `yaml:"client_ca" jsonschema:"default="`
	// Within is the time for a decision. One that takes longer is refunded, and on_store_failure decides.
	Within duration `yaml:"within" jsonschema:"default=15ms"`
	// WithinOutcome is how long after a decision the outcome of the request may be reported.
	WithinOutcome duration `yaml:"within_outcome" jsonschema:"default=1m"`
	// Secret signs the handles by which outcomes are reported, the same on all nodes, at least 16 characters; when it is empty each node makes its own, and a restart makes another.
	Secret string `yaml:"secret" jsonschema:"default=" hidden:"true"`

	TLS []Pair `yaml:"-"` // one at most; without it there is no TLS
}

// Drain configures the shutdown.
type Drain struct {
	// Delay is how long weir reports not ready but still accepts connections, so that load balancers notice; without it, weir stops accepting connections at once.
	Delay duration `yaml:"delay,omitempty"`
	// Within is how long requests in progress may take to finish after that.
	Within duration `yaml:"within" jsonschema:"default=25s"`
}

// tlsForm configures the certificates for HTTPS: files, which are relative to the
// config and reloaded when they change, and certificates from an authority over
// ACME.
type tlsForm struct {
	// Cert is a file with a certificate and those that signed it, in PEM.
	Cert string `yaml:"cert,omitempty"`
	// Key is a file with its private key, in PEM.
	Key string `yaml:"key,omitempty"`
	// More certificates, selected by server name (SNI); the first one is the default.
	More []*Pair `yaml:"more,omitempty"`
	// ACME obtains certificates from an authority and renews them.
	ACME *ACME `yaml:"acme,omitempty"`
}

// ACME configures the domains and the authority for ACME. By configuring it
// you agree to the authority's terms of service.
type ACME struct {
	// Domains are the names, with one certificate each; the first one is the default.
	Domains list `yaml:"domains" jsonschema:"required" empty:"names no domain; write for example [api.example.com]"`
	// Email is the contact address for the authority.
	Email string `yaml:"email" jsonschema:"default="`
	// Directory is the URL of the authority's ACME directory.
	Directory string `yaml:"directory" jsonschema:"default=https://acme-v02.api.letsencrypt.org/directory"`
	// CA is a PEM file, relative to this file, with the authorities that sign the certificate of the directory; default: those of the system.
	CA string `yaml:"ca" jsonschema:"default="`
	// Storage is a directory, relative to this file, for certificates, keys and the account. Several proxies may share it.
	Storage string `yaml:"storage" jsonschema:"default=acme"`
	// Challenges are the challenge types: http-01 needs port 80 of each domain, tls-alpn-01 port 443. Both when not given and listen.http is an address.
	Challenges list `yaml:"challenges,omitempty" jsonschema:"enum=http-01,enum=tls-alpn-01"`

	HTTP bool `yaml:"-"` // http-01, on listen.http; at least one of the two is true
	ALPN bool `yaml:"-"` // tls-alpn-01, on listen.https
}

// Pair is a certificate and its key.
type Pair struct {
	// Cert is a file with a certificate and those that signed it, in PEM.
	Cert string `yaml:"cert" jsonschema:"required"`
	// Key is a file with its private key, in PEM.
	Key string `yaml:"key" jsonschema:"required"`
}

// ListenTimeouts holds the timeouts for clients. Uploads and downloads may take
// any time while data flows.
type ListenTimeouts struct {
	// Handshake is the time for a TLS handshake; the time for the first request header begins at its end.
	Handshake duration `yaml:"handshake" jsonschema:"default=10s"`
	// Header is the time for a whole request header.
	Header duration `yaml:"header" jsonschema:"default=10s"`
	// Body is how long a request body may stall; it must also average 500 bytes a second from its first byte on, with 5 seconds of tolerance. It no longer applies once the response has begun.
	Body duration `yaml:"body" jsonschema:"default=30s"`
	// Write is how long a client may accept no data.
	Write duration `yaml:"write" jsonschema:"default=30s"`
	// Idle is how long a connection is kept open between requests.
	Idle duration `yaml:"idle" jsonschema:"default=2m"`
}

// Admin configures the admin listener.
type Admin struct {
	// HTTP is the address of the admin listener, host:port.
	HTTP string `yaml:"http" jsonschema:"default=127.0.0.1:9901"`
	// HTTPS is a second address, with TLS and the certificates of listen.tls, host:port, or none.
	HTTPS string `yaml:"https" jsonschema:"default=none"`
	// ClientCA is a PEM file with authorities. With it, admin.https requires a client certificate signed by one of them, in addition to a token.
	ClientCA string `yaml:"client_ca" jsonschema:"default="`
	// Token is the required bearer token. It may be empty, or shorter than 16 characters, on a loopback address only.
	Token string `yaml:"token" jsonschema:"default=" hidden:"true"`
	// Tokens are the tokens of individual operators, each with a name and a role. If there is one, every request needs a token.
	Operators []*Token `yaml:"tokens,omitempty"`
	// Hosts are further host names that requests without a token may use; localhost and loopback addresses are always allowed.
	Hosts list `yaml:"hosts,omitempty"`

	Tokens []Token `yaml:"-"` // if there is one, Token may be empty, and every request needs a token
}

// Token is the token of one operator.
type Token struct {
	// Name of the operator in the audit trail.
	Name string `yaml:"name" jsonschema:"required"`
	// Token is the bearer token, at least 16 characters. If it is empty, the entry is ignored.
	Text string `yaml:"token" jsonschema:"default=" hidden:"(hidden, of {name})"`
	// Role is read, to view and explain, or write, to make changes as well.
	Role string `yaml:"role" jsonschema:"default=read,enum=read,enum=write"`

	Write bool `yaml:"-"` // whether it may make changes
}

// Redis configures the connection to Redis.
type Redis struct {
	// Mode is how Redis is deployed.
	Mode RedisMode `yaml:"mode" jsonschema:"default=single,enum=single,enum=sentinel,enum=cluster"`
	// Addrs are the servers, host:port: the one of mode single, the sentinels, or some nodes of the cluster.
	Addrs list `yaml:"addrs" jsonschema:"default=127.0.0.1:6379"`
	// Master is the master name in Sentinel.
	Master string `yaml:"master" jsonschema:"default="`
	// Username for Redis 6 access lists.
	Username string `yaml:"username" jsonschema:"default="`
	// Password for Redis.
	Password string `yaml:"password" jsonschema:"default=" hidden:"true"`
	// Sentinel holds the credentials for the sentinels.
	Sentinel Login `yaml:"sentinel"`
	// TLS configures TLS for Redis and the sentinels.
	Files redisTLSForm `yaml:"tls"`
	// Prefix of all keys, so that several installations can share one Redis.
	Prefix string `yaml:"prefix" jsonschema:"default=weir"`
	// Timeout is the maximum time for one decision.
	Timeout duration `yaml:"timeout" jsonschema:"default=50ms"`
	// Breaker configures the circuit breaker for Redis.
	Breaker Breaker `yaml:"breaker"`

	TLS *UpstreamTLS `yaml:"-"` // nil: without TLS
}

// redisTLSForm configures TLS for Redis.
type redisTLSForm struct {
	// Enabled turns TLS on.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// CA is a PEM file, relative to this file, with the trusted authorities; default: those of the system.
	CA string `yaml:"ca" jsonschema:"default="`
	// Cert is a PEM file with the client certificate.
	Cert string `yaml:"cert" jsonschema:"default="`
	// Key is a PEM file with its private key.
	Key string `yaml:"key" jsonschema:"default="`
	// ServerName is the expected name in the certificate of Redis; the host of the address when not given.
	ServerName string `yaml:"server_name" jsonschema:"default="`
}

// Login holds credentials.
type Login struct {
	// Username for Redis 6 access lists.
	Username string `yaml:"username" jsonschema:"default="`
	// Password for it.
	Password string `yaml:"password" jsonschema:"default=" hidden:"true"`
}

// Breaker configures the circuit breaker for Redis.
type Breaker struct {
	// After is the number of consecutive failures that open the breaker.
	After int `yaml:"after" jsonschema:"default=5,minimum=1,maximum=1000000"`
	// Rest is how long the breaker stays open.
	Rest duration `yaml:"rest" jsonschema:"default=2s"`
}

// Reject is the response to a refused request.
type Reject struct {
	// Status of the response.
	Status int `yaml:"status" jsonschema:"default=429,minimum=400,maximum=599"`
	// Detail is the detail of the problem, a sentence. {retry_after} is replaced by the seconds, {limit} by the name of the limit, {request_id} by the id of the request.
	Detail string `yaml:"detail" jsonschema:"default=Too many requests. Try again in {retry_after} s."`
	// Additional headers of the response, with the same placeholders and {origin}: the origin of the page that sent the request, without which the header is left out.
	Headers map[string]string `yaml:"headers,omitempty"`
	// Body replaces the problem document (RFC 9457); it has the same placeholders.
	Body string `yaml:"body,omitempty"`
	// ContentType of the body; text/plain in UTF-8 when not given. The values of placeholders are escaped for JSON and HTML.
	ContentType string `yaml:"content_type,omitempty"`
}

// ErrorText is what Weir answers with the status of an error.
type ErrorText struct {
	// Detail is the detail of the problem, a sentence. {request_id} is replaced by the id of the request, {status} by the status, {retry_after} by the seconds of Retry-After, or 0.
	Detail string `yaml:"detail,omitempty"`
	// Additional headers of the response, with the same placeholders and {origin}: the origin of the page that sent the request, without which the header is left out.
	Headers map[string]string `yaml:"headers,omitempty"`
	// Body replaces the problem document (RFC 9457); it has the same placeholders.
	Body string `yaml:"body,omitempty"`
	// ContentType of the body; text/plain in UTF-8 when not given. The values of placeholders are escaped for JSON and HTML.
	ContentType string `yaml:"content_type,omitempty"`
}

// Numbered lets a status stand without quotes.
func (*ErrorText) Numbered() {}

// Upstream is an upstream.
type Upstream struct {
	// Text is the short form: echo, or a URL.
	Text string `yaml:"-" short:"true"`

	// Targets are the servers.
	Servers []*Target `yaml:"targets" jsonschema:"required,minItems=1" empty:"there is no target; name at least one URL"`
	// Balance is the load balancing policy: round_robin, least_loaded, or hash:KEY, which sends all requests with the same key to the same target.
	Balance Balance `yaml:"balance" jsonschema:"default=round_robin,pattern=^(round_robin|least_loaded|hash:.+)$"`
	// Health configures active health checks and passive ejection (outlier detection).
	Health Health `yaml:"health"`
	// Timeouts for the targets.
	Timeouts Timeouts `yaml:"timeouts"`
	// Retries is how many further targets are tried: when the connection to one failed, or when it closed the connection without a response and the method is idempotent. At most a fifth of all requests is retried.
	Retries int `yaml:"retries" jsonschema:"default=0,minimum=0,maximum=10"`
	// MaxConnections is the maximum number of concurrent requests to one target; unlimited when not given.
	MaxConnections int `yaml:"max_connections,omitempty" jsonschema:"minimum=1,maximum=1000000"`
	// Queue holds requests while all targets have max_connections.
	Queue Queue `yaml:"queue"`
	// Protocol of the targets: h2 needs https, h2c is HTTP/2 without TLS.
	Protocol Protocol `yaml:"protocol" jsonschema:"default=http1,enum=http1,enum=h2,enum=h2c"`
	// TLS for https targets.
	TLS UpstreamTLS `yaml:"tls"`
	// Resolve is how often the names of targets are resolved again, so that connections to stale addresses are closed.
	Resolve duration `yaml:"resolve" jsonschema:"default=30s"`
	// Forwarded adds the header field Forwarded (RFC 7239).
	Forwarded bool `yaml:"forwarded" jsonschema:"default=false"`

	Name     string    `yaml:"-"` // its URL if it is inline
	Echo     bool      `yaml:"-"` // built in: returns the request; there are no Targets
	Targets  []Target  `yaml:"-"` // at least one unless Echo
	HashBy   *key.Spec `yaml:"-"` // not nil exactly when Balance is BalanceHash
	Position Position  `yaml:"-"`
}

// Health configures active health checks and passive ejection.
type Health struct {
	// Path of the health check, requested with GET; no checks when not given.
	Path string `yaml:"path,omitempty" jsonschema:"pattern=^/"`
	// Interval between checks.
	Interval duration `yaml:"interval" jsonschema:"default=5s"`
	// Timeout of a check.
	Timeout duration `yaml:"timeout" jsonschema:"default=2s"`
	// Status of a healthy response: 200, 2xx, 200-204; 2xx when not given.
	Status Statuses `yaml:"status,omitempty"`
	// After is the number of consecutive failed checks after which a target is unhealthy until one succeeds, and the number of consecutive failed connections after which it is ejected.
	After int `yaml:"after" jsonschema:"default=3,minimum=1,maximum=1000000"`
	// Rest is how long a target is ejected; it is then used only if no other target is available.
	Rest duration `yaml:"rest" jsonschema:"default=10s"`
	// SlowStart is how long the share of a recovered target grows from a tenth to the full share; it has the full share at once when not given.
	SlowStart duration `yaml:"slow_start,omitempty"`
}

// Queue is the queue for a target.
type Queue struct {
	// Length is the maximum number of waiting requests; more are answered with 503.
	Length int `yaml:"length" jsonschema:"default=100,minimum=0,maximum=1000000"`
	// Timeout is the maximum waiting time, after which the answer is 503.
	Timeout duration `yaml:"timeout" jsonschema:"default=1s"`
}

// UpstreamTLS configures TLS for https targets.
type UpstreamTLS struct {
	// CA is a PEM file, relative to this file, with the trusted authorities; default: those of the system.
	CA string `yaml:"ca" jsonschema:"default="`
	// Cert is a PEM file with the client certificate and its intermediates.
	Cert string `yaml:"cert" jsonschema:"default="`
	// Key is a PEM file with its private key.
	Key string `yaml:"key" jsonschema:"default="`
	// ServerName is sent as SNI and expected in the target's certificate; the host of its URL when not given.
	ServerName string `yaml:"server_name" jsonschema:"default="`

	Roots       *x509.CertPool   `yaml:"-"` // nil: those of the system
	Certificate *tls.Certificate `yaml:"-"` // client certificate; nil: none
}

// Target is one server of an upstream.
type Target struct {
	// URL of the server: http or https, host, optional port; or unix: and the path of a socket.
	Text string `yaml:"url" jsonschema:"required" short:"true"`
	// Weight is its share of the requests.
	Weight int `yaml:"weight" jsonschema:"default=1,minimum=1,maximum=1000"`

	URL *url.URL `yaml:"-"` // http or https, a host, perhaps a port, nothing else; or unix and an absolute path
}

// Timeouts holds the timeouts for upstreams.
type Timeouts struct {
	// Connect is the time to establish a connection.
	Connect duration `yaml:"connect" jsonschema:"default=2s"`
	// TLS is the time for the TLS handshake; when not given, connect covers both.
	TLS duration `yaml:"tls,omitempty"`
	// Response is the time from the end of the request to the response header, and for each part of a body to be accepted.
	Response duration `yaml:"response" jsonschema:"default=30s"`
	// Idle is the maximum gap within a response; unlimited when not given.
	Idle duration `yaml:"idle,omitempty"`
}
