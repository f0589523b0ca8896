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
	Timeouts timeoutBoundsForm `yaml:"timeouts"`
	// MaxHeader is how long a request's header may be.
	MaxHeader size `yaml:"max_header" jsonschema:"default=64KiB"`
	// MaxBuffered is how much memory all bodies together may take that are kept because a key is read from them. Beyond it such requests are answered with 503.
	MaxBuffered size `yaml:"max_buffered" jsonschema:"default=128MiB"`
	// ReusePort lets another weir listen on the same addresses at the same time, so that it can take over before this one ends. Without it a second one is a fault.
	ReusePort bool `yaml:"reuse_port" jsonschema:"default=false"`
	// Drain says how weir ends.
	Drain drainForm `yaml:"drain"`
}

// drainForm says how weir ends.
type drainForm struct {
	// Delay is how long weir says that it is no longer ready, and still takes connections, for load balancers that ask; without it, it takes none at once.
	Delay duration `yaml:"delay,omitempty"`
	// Within is how long requests under way have to end after that.
	Within duration `yaml:"within" jsonschema:"default=25s"`
}

// tlsForm says with which certificates HTTPS is served: those of files, which are
// relative to the config and read anew when they change, and those that an
// authority gives over ACME.
type tlsForm struct {
	// Cert is a file with a certificate and those that signed it, in PEM.
	Cert string `yaml:"cert,omitempty"`
	// Key is a file with its private key, in PEM.
	Key string `yaml:"key,omitempty"`
	// More certificates, chosen by the name that a client asks for; the first one is for clients that ask for none of them.
	More []*pairForm `yaml:"more,omitempty"`
	// ACME gets certificates from an authority and renews them in time.
	ACME *acmeForm `yaml:"acme,omitempty"`
}

// acmeForm says for which names an authority is asked for certificates. Who writes
// it agrees to the authority's terms.
type acmeForm struct {
	// Domains are the names, one certificate for each; the first is shown to clients that ask for none of them.
	Domains list `yaml:"domains" jsonschema:"required"`
	// Email is where the authority writes to when something is wrong.
	Email string `yaml:"email" jsonschema:"default="`
	// Directory is the authority's URL.
	Directory string `yaml:"directory" jsonschema:"default=https://acme-v02.api.letsencrypt.org/directory"`
	// CA is a PEM file of certificates, relative to this file, that vouch for the directory itself. Without one, what the machine trusts does.
	CA string `yaml:"ca" jsonschema:"default="`
	// Storage is a folder, relative to this file, where certificates, their keys and the account outlive restarts. Several proxies may share it.
	Storage string `yaml:"storage" jsonschema:"default=acme"`
	// Challenges are the ways to prove that the names are ours: http-01 is asked at port 80 of each, tls-alpn-01 at port 443. Both when not given, and listen.http is listened on.
	Challenges list `yaml:"challenges,omitempty" jsonschema:"enum=http-01,enum=tls-alpn-01"`
}

// pairForm is a certificate and its key.
type pairForm struct {
	// Cert is a file with a certificate and those that signed it, in PEM.
	Cert string `yaml:"cert" jsonschema:"required"`
	// Key is a file with its private key, in PEM.
	Key string `yaml:"key" jsonschema:"required"`
}

// timeoutBoundsForm bounds how long a client may take. Uploads and downloads may last
// as long as bytes flow.
type timeoutBoundsForm struct {
	// Header is how long the header of a request may take.
	Header duration `yaml:"header" jsonschema:"default=10s"`
	// Body is how long a request's body may stand still; from its first byte on it must also bring 500 bytes a second, give or take 5 seconds. It no longer holds once the answer has begun.
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
	// HTTPS is a second address of it, in TLS with the certificates of listen.tls, host:port, or none.
	HTTPS string `yaml:"https" jsonschema:"default=none"`
	// ClientCA is a file with certificates of authorities, in PEM. With it, admin.https answers only those who show a certificate that one of these has signed; tokens are asked for besides.
	ClientCA string `yaml:"client_ca" jsonschema:"default="`
	// Token is asked for as a bearer token. It may be empty, or shorter than 16 characters, on a loopback address only.
	Token secret `yaml:"token" jsonschema:"default="`
	// Tokens are those of single operators, each with a name and a role. With one of them nobody is answered without a token.
	Tokens []*tokenForm `yaml:"tokens,omitempty"`
	// Hosts are names by which this machine's own programs may ask while there is no token; localhost and loopback addresses always are.
	Hosts list `yaml:"hosts,omitempty"`
}

// tokenForm is the token of one operator.
type tokenForm struct {
	// Name is what the audit trail calls the operator.
	Name string `yaml:"name" jsonschema:"required"`
	// Token is asked for as a bearer token, 16 characters or more. While it is empty, there is no such operator.
	Token secret `yaml:"token" jsonschema:"default="`
	// Role is read, to look and to ask what would be, or write, to change as well.
	Role string `yaml:"role" jsonschema:"default=read,enum=read,enum=write"`
}
