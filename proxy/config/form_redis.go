package config

// redisForm configures the connection to Redis.
type redisForm struct {
	// Mode is how Redis is deployed.
	Mode string `yaml:"mode" jsonschema:"default=single,enum=single,enum=sentinel,enum=cluster"`
	// Addrs are the servers, host:port: the one of mode single, the sentinels, or some nodes of the cluster.
	Addrs list `yaml:"addrs" jsonschema:"default=127.0.0.1:6379"`
	// Master is the master name in Sentinel.
	Master string `yaml:"master" jsonschema:"default="`
	// Username for Redis 6 access lists.
	Username string `yaml:"username" jsonschema:"default="`
	// Password for Redis.
	Password secret `yaml:"password" jsonschema:"default="`
	// Sentinel holds the credentials for the sentinels.
	Sentinel loginForm `yaml:"sentinel"`
	// TLS configures TLS for Redis and the sentinels.
	TLS redisTLSForm `yaml:"tls"`
	// Prefix of all keys, so that several installations can share one Redis.
	Prefix string `yaml:"prefix" jsonschema:"default=weir"`
	// Timeout is the maximum time for one decision.
	Timeout duration `yaml:"timeout" jsonschema:"default=50ms"`
	// Breaker configures the circuit breaker for Redis.
	Breaker breakerForm `yaml:"breaker"`
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

// loginForm holds credentials.
type loginForm struct {
	// Username for Redis 6 access lists.
	Username string `yaml:"username" jsonschema:"default="`
	// Password for it.
	Password secret `yaml:"password" jsonschema:"default="`
}

// breakerForm configures the circuit breaker for Redis.
type breakerForm struct {
	// After is the number of consecutive failures that open the breaker.
	After int `yaml:"after" jsonschema:"default=5,minimum=1,maximum=1000000"`
	// Rest is how long the breaker stays open.
	Rest duration `yaml:"rest" jsonschema:"default=2s"`
}
