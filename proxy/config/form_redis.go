package config

// redisForm says how to reach Redis.
type redisForm struct {
	// Mode is how Redis is deployed.
	Mode string `yaml:"mode" jsonschema:"default=single,enum=single,enum=sentinel,enum=cluster"`
	// Addrs are the servers, host:port: the one of mode single, the sentinels, or some nodes of the cluster.
	Addrs list `yaml:"addrs" jsonschema:"default=127.0.0.1:6379"`
	// Master is the name that the sentinels know the master by.
	Master string `yaml:"master" jsonschema:"default="`
	// Username for Redis 6 access lists.
	Username string `yaml:"username" jsonschema:"default="`
	// Password for Redis.
	Password secret `yaml:"password" jsonschema:"default="`
	// Sentinel is how to log in to the sentinels themselves.
	Sentinel loginForm `yaml:"sentinel"`
	// TLS says whether TLS is spoken with Redis, and with the sentinels.
	TLS redisTLSForm `yaml:"tls"`
	// Prefix of every key, so that several Weirs can share one Redis.
	Prefix string `yaml:"prefix" jsonschema:"default=weir"`
	// Timeout is the longest that one decision may wait.
	Timeout duration `yaml:"timeout" jsonschema:"default=50ms"`
	// Breaker says when a failing Redis is left alone.
	Breaker breakerForm `yaml:"breaker"`
}

// redisTLSForm says how Redis is trusted, and who Weir is to it.
type redisTLSForm struct {
	// Enabled: TLS is spoken.
	Enabled bool `yaml:"enabled" jsonschema:"default=false"`
	// CA is a PEM file of certificates, relative to this file: only what they vouch for is trusted. Without one, what the machine trusts is.
	CA string `yaml:"ca" jsonschema:"default="`
	// Cert is a PEM file of the certificate that Weir shows.
	Cert string `yaml:"cert" jsonschema:"default="`
	// Key is a PEM file of its private key.
	Key string `yaml:"key" jsonschema:"default="`
	// ServerName must be in Redis's certificate; the host of its address when not given.
	ServerName string `yaml:"server_name" jsonschema:"default="`
}

// loginForm is who Weir is to a server.
type loginForm struct {
	// Username for Redis 6 access lists.
	Username string `yaml:"username" jsonschema:"default="`
	// Password for it.
	Password secret `yaml:"password" jsonschema:"default="`
}

// breakerForm says when a failing Redis is left alone.
type breakerForm struct {
	// After so many failures in a row Redis is not asked any more.
	After int `yaml:"after" jsonschema:"default=5,minimum=1,maximum=1000000"`
	// Rest is how long it is left alone then.
	Rest duration `yaml:"rest" jsonschema:"default=2s"`
}
