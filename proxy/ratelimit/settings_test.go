package ratelimit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
)

// gateway is the environment in which Envoy Gateway starts a rate limit service, without certificates.
const gateway = "RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_IGNOREDOTFILES=true RUNTIME_WATCH_ROOT=false LOG_LEVEL=info USE_STATSD=false " +
	"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001 CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit FORCE_START_WITHOUT_INITIAL_CONFIG=true " +
	"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis.redis-system.svc:6379 USE_PROMETHEUS=true PROMETHEUS_ADDR=:19001 WEIR_ADMIN_TOKEN=0123456789abcdef"

// read reads an environment of NAME=VALUE, of which later ones replace earlier ones.
func read(text string) (Settings, error) {
	values := map[string]string{}
	for _, v := range strings.Fields(text) {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
	}
	return Read(func(name string) string { return values[name] })
}

// load returns the configuration for an environment.
func load(t *testing.T, text string) *config.Config {
	t.Helper()
	s, err := read(text)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewService(s).Load()
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Machine)
	}
	return c
}

func TestRead_EnvoyGateway(t *testing.T) {
	s, err := read(gateway)
	if err != nil {
		t.Fatal(err)
	}
	if s.XDS != (Server{Address: "envoy-gateway:18001", Node: "envoy-ratelimit"}) || s.Health != "0.0.0.0:8080" || s.NeedsLimits || s.LogLevel != "info" {
		t.Errorf("%+v", s)
	}
	c := load(t, gateway)
	if d := c.Listen.Decide; d.GRPC != "0.0.0.0:8081" || d.HTTP != "" || c.Listen.HTTP != "" || c.Admin.HTTP != ":19001" || c.Admin.Token != "0123456789abcdef" {
		t.Errorf("listens at %+v, %+v", d, c.Admin)
	}
	if c.Store != config.StoreRedis || c.Redis.Mode != config.RedisSingle || c.Redis.Addrs[0] != "redis.redis-system.svc:6379" || c.Redis.TLS != nil {
		t.Errorf("redis: %+v", c.Redis)
	}
}

// Each setting becomes one of Weir.
func TestRead_Settings(t *testing.T) {
	for _, test := range []struct {
		environment string
		got         func(c *config.Config) any
		want        any
	}{
		{"GRPC_HOST=127.0.0.1 GRPC_PORT=9", func(c *config.Config) any { return c.Listen.Decide.GRPC }, "127.0.0.1:9"},
		{"USE_PROMETHEUS=false", func(c *config.Config) any { return c.Admin.HTTP }, "127.0.0.1:9901"},
		{"REDIS_URL=redis-a:1,redis-b:2 REDIS_TYPE=CLUSTER", func(c *config.Config) any { return strings.Join(c.Redis.Addrs, " ") }, "redis-a:1 redis-b:2"},
		{"REDIS_URL=main,a:1,b:2 REDIS_TYPE=SENTINEL", func(c *config.Config) any { return c.Redis.Master + " " + strings.Join(c.Redis.Addrs, " ") }, "main a:1 b:2"},
		{"REDIS_URL=main,a:1 REDIS_TYPE=sentinel REDIS_SENTINEL_AUTH=u:p", func(c *config.Config) any { return c.Redis.Sentinel }, config.Login{Username: "u", Password: "p"}},
		{"REDIS_URL=redis://u:p$x@a:1/0", func(c *config.Config) any { return c.Redis.Username + " " + c.Redis.Password + " " + c.Redis.Addrs[0] }, "u p$x a:1"},
		{"REDIS_URL=rediss://a", func(c *config.Config) any {
			return c.Redis.Addrs[0] + " " + map[bool]string{true: "tls"}[c.Redis.TLS != nil]
		}, "a:6379 tls"},
		{"REDIS_AUTH=p", func(c *config.Config) any { return c.Redis.Username + " " + c.Redis.Password }, " p"},
		{"REDIS_TLS=true", func(c *config.Config) any { return c.Redis.TLS != nil }, true},
		{"TRACING_ENABLED=true TRACING_SAMPLING_RATE=0.5 OTEL_EXPORTER_OTLP_ENDPOINT=http://otel:4318", func(c *config.Config) any { return c.Traces.Endpoint }, "http://otel:4318/v1/traces"},
	} {
		if got := test.got(load(t, gateway+" "+test.environment)); got != test.want {
			t.Errorf("%s: %v, want %v", test.environment, got, test.want)
		}
	}
}

// Certificates are those of the files, and Envoy must have one that the authority signed.
func TestRead_Certificates(t *testing.T) {
	dir := t.TempDir()
	s, err := read(gateway + " GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=" + dir + "/tls.crt GRPC_SERVER_TLS_KEY=" + dir + "/tls.key GRPC_SERVER_TLS_CA_CERT=" + dir + "/ca.crt" +
		" CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c CONFIG_GRPC_XDS_CLIENT_TLS_KEY=k CONFIG_GRPC_XDS_SERVER_TLS_CACERT=a CONFIG_GRPC_XDS_SERVER_TLS_SAN=n XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=9")
	if err != nil {
		t.Fatal(err)
	}
	if want := (Server{"envoy-gateway:18001", "envoy-ratelimit", true, "a", "c", "k", "n", 9}); s.XDS != want {
		t.Errorf("%+v, want %+v", s.XDS, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	var problems config.Problems
	if _, err := NewService(s).Load(); !errors.As(err, &problems) || !strings.Contains(err.Error(), "there is no certificate in this file") {
		t.Errorf("error %v, want one about ca.crt", err)
	}
}

// What Weir has not is a problem, each with its variable; secrets are not shown.
func TestRead_Problems(t *testing.T) {
	for environment, want := range map[string]string{
		"CONFIG_TYPE=FILE":                          "CONFIG_TYPE=FILE: is not supported",
		"CONFIG_TYPE=":                              "weir convert ratelimit FILE",
		"BACKEND_TYPE=memcache":                     "BACKEND_TYPE=memcache: is not supported",
		"GRPC_UDS=/tmp/a":                           "GRPC_UDS=/tmp/a: is not supported",
		"GRPC_PORT=0":                               "GRPC_PORT=0: is not a port",
		"USE_PROMETHEUS=maybe":                      "USE_PROMETHEUS=maybe: is not true or false",
		"PROMETHEUS_ADDR=9090":                      "PROMETHEUS_ADDR=9090: is not HOST:PORT",
		"REDIS_URL=redis://:secret@a:1/7":           "REDIS_URL: Weir uses database 0 only",
		"REDIS_URL=/var/run/ratelimit.sock":         "REDIS_URL: is not HOST:PORT",
		"REDIS_URL=":                                "REDIS_URL: is not HOST:PORT",
		"REDIS_TYPE=ring":                           "REDIS_TYPE=ring: is not SINGLE, SENTINEL or CLUSTER",
		"LOG_LEVEL=loud":                            "LOG_LEVEL=loud: is not a level",
		"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=-1":       "is not a size",
		"TRACING_ENABLED=1 TRACING_SAMPLING_RATE=2": "TRACING_SAMPLING_RATE=2: is not a number from 0 to 1",
	} {
		_, err := read(gateway + " " + environment)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v, want %q", environment, err, want)
		}
	}
}
