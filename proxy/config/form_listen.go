package config

// listenForm says where clients connect.
type listenForm struct {
	// HTTP is the address for plain HTTP, host:port, or none.
	HTTP string `yaml:"http" jsonschema:"default=:8080"`
	// HTTPS is the address for HTTP in TLS, host:port, or none.
	HTTPS string `yaml:"https" jsonschema:"default=none"`
	// TLS says with which certificates HTTPS is served.
	TLS *tlsForm `yaml:"tls,omitempty"`
	// H2C lets clients speak HTTP/2 without TLS, with prior knowledge.
	H2C bool `yaml:"h2c" jsonschema:"default=false"`
	// ProxyProtocol names the networks of load balancers that begin each connection with the PROXY protocol, version 1 or 2.
	ProxyProtocol list `yaml:"proxy_protocol"`
	// Timeouts bound how long a client may take.
	Timeouts patienceForm `yaml:"timeouts"`
	// MaxHeader is how long a request's header may be.
	MaxHeader size `yaml:"max_header" jsonschema:"default=64KiB"`
}

// tlsForm says with which certificates HTTPS is served. Files are relative to
// the config, and read anew when they change.
type tlsForm struct {
	// Cert is a file with a certificate and those that signed it, in PEM.
	Cert string `yaml:"cert" jsonschema:"required"`
	// Key is a file with its private key, in PEM.
	Key string `yaml:"key" jsonschema:"required"`
	// More certificates, chosen by the name that a client asks for; the first one is for clients that ask for none of them.
	More []*pairForm `yaml:"more,omitempty"`
}

// pairForm is a certificate and its key.
type pairForm struct {
	// Cert is a file with a certificate and those that signed it, in PEM.
	Cert string `yaml:"cert" jsonschema:"required"`
	// Key is a file with its private key, in PEM.
	Key string `yaml:"key" jsonschema:"required"`
}

// patienceForm bounds how long a client may take. Uploads and downloads may last
// as long as bytes flow.
type patienceForm struct {
	// Header is how long the header of a request may take.
	Header duration `yaml:"header" jsonschema:"default=10s"`
	// Body is how long a request's body may stand still; on average it must also bring 500 bytes a second. It no longer holds once the answer has begun.
	Body duration `yaml:"body" jsonschema:"default=30s"`
	// Write is how long a client may take nothing of what it is sent.
	Write duration `yaml:"write" jsonschema:"default=30s"`
	// Idle is how long a connection may stay open between requests.
	Idle duration `yaml:"idle" jsonschema:"default=2m"`
}

// adminForm says where operators connect.
type adminForm struct {
	// HTTP is the address of the admin listener, host:port.
	HTTP string `yaml:"http" jsonschema:"default=127.0.0.1:9901"`
	// Token is asked for as a bearer token. It may be empty on a loopback address only.
	Token secret `yaml:"token" jsonschema:"default="`
}
