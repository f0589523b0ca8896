package config

// upstreamForm is an upstream.
type upstreamForm struct {
	// Text is the short form: echo, or a URL.
	Text string `yaml:"-"`

	// Targets are the servers.
	Targets []*targetForm `yaml:"targets" jsonschema:"required,minItems=1"`
	// Balance is the load balancing policy: round_robin, least_loaded, or hash:KEY, which sends all requests with the same key to the same target.
	Balance string `yaml:"balance" jsonschema:"default=round_robin,pattern=^(round_robin|least_loaded|hash:.+)$"`
	// Health configures active health checks and passive ejection (outlier detection).
	Health healthForm `yaml:"health"`
	// Timeouts for the targets.
	Timeouts timeoutsForm `yaml:"timeouts"`
	// Retries is how many further targets are tried: when the connection to one failed, or when it closed the connection without a response and the method is idempotent. At most a fifth of all requests is retried.
	Retries int `yaml:"retries" jsonschema:"default=0,minimum=0,maximum=10"`
	// MaxConnections is the maximum number of concurrent requests to one target; unlimited when not given.
	MaxConnections int `yaml:"max_connections,omitempty" jsonschema:"minimum=1,maximum=1000000"`
	// Queue holds requests while all targets have max_connections.
	Queue queueForm `yaml:"queue"`
	// Protocol of the targets: h2 needs https, h2c is HTTP/2 without TLS.
	Protocol string `yaml:"protocol" jsonschema:"default=http1,enum=http1,enum=h2,enum=h2c"`
	// TLS for https targets.
	TLS upstreamTLSForm `yaml:"tls"`
	// Resolve is how often the names of targets are resolved again, so that connections to stale addresses are closed.
	Resolve duration `yaml:"resolve" jsonschema:"default=30s"`
	// Forwarded adds the header field Forwarded (RFC 7239).
	Forwarded bool `yaml:"forwarded" jsonschema:"default=false"`
}

// healthForm configures active health checks and passive ejection.
type healthForm struct {
	// Path of the health check, requested with GET; no checks when not given.
	Path string `yaml:"path,omitempty" jsonschema:"pattern=^/"`
	// Interval between checks.
	Interval duration `yaml:"interval" jsonschema:"default=5s"`
	// Timeout of a check.
	Timeout duration `yaml:"timeout" jsonschema:"default=2s"`
	// Status of a healthy response: 200, 2xx, 200-204; 2xx when not given.
	Status codes `yaml:"status,omitempty"`
	// After is the number of consecutive failed checks after which a target is unhealthy until one succeeds, and the number of consecutive failed connections after which it is ejected.
	After int `yaml:"after" jsonschema:"default=3,minimum=1,maximum=1000000"`
	// Rest is how long a target is ejected; it is then used only if no other target is available.
	Rest duration `yaml:"rest" jsonschema:"default=10s"`
	// SlowStart is how long the share of a recovered target grows from a tenth to the full share; it has the full share at once when not given.
	SlowStart duration `yaml:"slow_start,omitempty"`
}

// queueForm is the queue for a target.
type queueForm struct {
	// Length is the maximum number of waiting requests; more are answered with 503.
	Length int `yaml:"length" jsonschema:"default=100,minimum=0,maximum=1000000"`
	// Timeout is the maximum waiting time, after which the answer is 503.
	Timeout duration `yaml:"timeout" jsonschema:"default=1s"`
}

// upstreamTLSForm configures TLS for https targets.
type upstreamTLSForm struct {
	// CA is a PEM file, relative to this file, with the trusted authorities; default: those of the system.
	CA string `yaml:"ca" jsonschema:"default="`
	// Cert is a PEM file with the client certificate and its intermediates.
	Cert string `yaml:"cert" jsonschema:"default="`
	// Key is a PEM file with its private key.
	Key string `yaml:"key" jsonschema:"default="`
	// ServerName is sent as SNI and expected in the target's certificate; the host of its URL when not given.
	ServerName string `yaml:"server_name" jsonschema:"default="`
}

// targetForm is one server of an upstream.
type targetForm struct {
	// URL of the server: http or https, host, optional port; or unix: and the path of a socket.
	URL string `yaml:"url" jsonschema:"required"`
	// Weight is its share of the requests.
	Weight int `yaml:"weight" jsonschema:"default=1,minimum=1,maximum=1000"`
}

// timeoutsForm holds the timeouts for upstreams.
type timeoutsForm struct {
	// Connect is the time to establish a connection.
	Connect duration `yaml:"connect" jsonschema:"default=2s"`
	// TLS is the time for the TLS handshake; when not given, connect covers both.
	TLS duration `yaml:"tls,omitempty"`
	// Response is the time from the end of the request to the response header.
	Response duration `yaml:"response" jsonschema:"default=30s"`
	// Idle is the maximum gap within a response; unlimited when not given.
	Idle duration `yaml:"idle,omitempty"`
}
