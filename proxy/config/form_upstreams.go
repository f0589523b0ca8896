package config

// upstreamForm is where requests go.
type upstreamForm struct {
	// Text is the short form: echo, or a URL.
	Text string `yaml:"-"`

	// Targets are the servers.
	Targets []*targetForm `yaml:"targets" jsonschema:"required,minItems=1"`
	// Balance is how requests are spread over them: round_robin, least_loaded, or hash:KEY, by which all requests with one key go to one target.
	Balance string `yaml:"balance" jsonschema:"default=round_robin,pattern=^(round_robin|least_loaded|hash:.+)$"`
	// Health says how targets are found out that are not fit to be asked.
	Health healthForm `yaml:"health"`
	// Timeouts bound the waiting for them.
	Timeouts timeoutsForm `yaml:"timeouts"`
	// Retries is how many more targets a request is taken to: when the one before could not be connected to, or when it hung up before it answered and the method is idempotent. A fifth of all requests at most is retried.
	Retries int `yaml:"retries" jsonschema:"default=0,minimum=0,maximum=10"`
	// MaxConnections is the most requests that one target works on at a time; any number when not given.
	MaxConnections int `yaml:"max_connections,omitempty" jsonschema:"minimum=1,maximum=1000000"`
	// Queue is where requests wait while all targets have max_connections.
	Queue queueForm `yaml:"queue"`
	// Protocol is what the targets speak: h2 needs https, h2c is HTTP/2 without TLS.
	Protocol string `yaml:"protocol" jsonschema:"default=http1,enum=http1,enum=h2,enum=h2c"`
	// TLS says how https targets are trusted, and who Weir is to them.
	TLS upstreamTLSForm `yaml:"tls"`
	// Resolve is how often the names of targets are looked up anew, so that connections to addresses that are gone end.
	Resolve duration `yaml:"resolve" jsonschema:"default=30s"`
	// Forwarded says whether targets are told of the client in the field Forwarded of RFC 7239 too.
	Forwarded bool `yaml:"forwarded" jsonschema:"default=false"`
}

// healthForm says how targets are found out that are not fit to be asked.
type healthForm struct {
	// Path that targets are asked for with GET to see how they fare; they are not when not given.
	Path string `yaml:"path,omitempty" jsonschema:"pattern=^/"`
	// Interval is how often they are.
	Interval duration `yaml:"interval" jsonschema:"default=5s"`
	// Timeout is how long the answer may take.
	Timeout duration `yaml:"timeout" jsonschema:"default=2s"`
	// Status of a good answer: 200, 2xx, 200-204; 2xx when not given.
	Status codes `yaml:"status,omitempty"`
	// After so many bad answers in a row a target is not asked until one is good; after so many connections in a row that could not be made it rests.
	After int `yaml:"after" jsonschema:"default=3,minimum=1,maximum=1000000"`
	// Rest is how long a target that rests is asked only when no other can be.
	Rest duration `yaml:"rest" jsonschema:"default=10s"`
	// SlowStart is how long the share of a target that is back grows from a tenth to the whole; it has the whole at once when not given.
	SlowStart duration `yaml:"slow_start,omitempty"`
}

// queueForm is where requests wait for a target.
type queueForm struct {
	// Length is how many may wait; more are answered with 503.
	Length int `yaml:"length" jsonschema:"default=100,minimum=0,maximum=1000000"`
	// Timeout is how long one may wait before it is.
	Timeout duration `yaml:"timeout" jsonschema:"default=1s"`
}

// upstreamTLSForm says how https targets are trusted, and who Weir is to them.
type upstreamTLSForm struct {
	// CA is a PEM file of certificates, relative to this file: only what they vouch for is trusted. Without one, what the machine trusts is.
	CA string `yaml:"ca" jsonschema:"default="`
	// Cert is a PEM file of the certificate that Weir shows, with those between it and its authority.
	Cert string `yaml:"cert" jsonschema:"default="`
	// Key is a PEM file of its private key.
	Key string `yaml:"key" jsonschema:"default="`
	// ServerName is asked for and must be in the target's certificate; the host of its URL when not given.
	ServerName string `yaml:"server_name" jsonschema:"default="`
}

// targetForm is one server of an upstream.
type targetForm struct {
	// URL of the server: http or https, host, perhaps a port; or unix: and the path of a socket.
	URL string `yaml:"url" jsonschema:"required"`
	// Weight is its share of the requests.
	Weight int `yaml:"weight" jsonschema:"default=1,minimum=1,maximum=1000"`
}

// timeoutsForm bounds the waiting for an upstream.
type timeoutsForm struct {
	// Connect is how long a connection may take to stand.
	Connect duration `yaml:"connect" jsonschema:"default=2s"`
	// TLS is how long its handshake may take; when not given, connect is for both together.
	TLS duration `yaml:"tls,omitempty"`
	// Response is how long the response's header may take after the request was sent.
	Response duration `yaml:"response" jsonschema:"default=30s"`
	// Idle is how long nothing may come in the middle of a response; without end when not given.
	Idle duration `yaml:"idle,omitempty"`
}
