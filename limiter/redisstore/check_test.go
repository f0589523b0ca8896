package redisstore_test

import (
	"cmp"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// checked returns the result of Check for a client of this configuration.
func checked(t *testing.T, c redisstore.ClientConfig) (warning string, err error) {
	t.Helper()
	c.Timeout = cmp.Or(c.Timeout, patient)
	s := storeOn(t, clientOf(t, c), redisstore.Options{Timeout: c.Timeout, CachedRefusals: -1})
	return s.Check(t.Context())
}

// A Redis that may evict counts is warned of: one with a limit of memory and a policy
// other than noeviction. Without a limit it evicts nothing.
func TestCheck_Eviction(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"":             {"--maxmemory", "100mb"},
		" ":            {"--maxmemory-policy", "allkeys-lru"},
		"allkeys-lru":  {"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"},
		"volatile-ttl": {"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"},
	} {
		server := redistest.Start(t, args...)
		warning, err := checked(t, redisstore.ClientConfig{Addrs: []string{server.Addr}})
		want = strings.TrimSpace(want)
		if err != nil || (warning == "") != (want == "") || !strings.Contains(warning, want) {
			t.Errorf("%v: %q, %v; want a warning of %q", args, warning, err, want)
		}
	}
	cluster := redistest.StartCluster(t, 3)
	c := redisstore.ClientConfig{Mode: redisstore.Cluster, Addrs: cluster.Addrs()}
	if warning, err := checked(t, c); warning != "" || err != nil {
		t.Errorf("a cluster: %q, %v", warning, err)
	}
	master := redis.NewClient(&redis.Options{Addr: cluster.Nodes[1].Addr})
	defer master.Close()
	for name, value := range map[string]string{"maxmemory": "100mb", "maxmemory-policy": "allkeys-lfu"} {
		if err := master.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if warning, err := checked(t, c); !strings.Contains(warning, "allkeys-lfu") || !strings.Contains(warning, cluster.Nodes[1].Addr) || err != nil {
		t.Errorf("a cluster of which one master evicts: %q, %v", warning, err)
	}
}

// A deployment of another kind than the client is for is recognized.
func TestCheck_Mode(t *testing.T) {
	t.Parallel()
	single, cluster, sentinel := redistest.Start(t), redistest.StartCluster(t, 3), redistest.StartSentinel(t)
	for what, c := range map[string]redisstore.ClientConfig{
		"single for a cluster":    {Addrs: cluster.Addrs()[:1]},
		"single for a sentinel":   {Addrs: sentinel.Addrs[:1]},
		"cluster for a single":    {Mode: redisstore.Cluster, Addrs: []string{single.Addr}},
		"cluster for a sentinel":  {Mode: redisstore.Cluster, Addrs: sentinel.Addrs},
		"sentinel for a single":   {Mode: redisstore.Sentinel, Master: sentinel.Name, Addrs: []string{single.Addr}},
		"sentinel for a cluster":  {Mode: redisstore.Sentinel, Master: sentinel.Name, Addrs: cluster.Addrs()},
		"sentinel for a sentinel": {Mode: redisstore.Sentinel, Master: sentinel.Name, Addrs: sentinel.Addrs},
	} {
		want := redisstore.ErrMode
		if what == "sentinel for a sentinel" {
			want = nil
		}
		if _, err := checked(t, c); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}

// A failed handshake says so, also if the server says nothing: a Redis without TLS waits
// for the end of the line.
func TestCheck_TLS(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := redisstore.ClientConfig{Addrs: []string{server.Addr}, TLS: &tls.Config{ServerName: "redis.test"}, Timeout: 200 * time.Millisecond}
	if _, err := checked(t, c); !errors.Is(err, redisstore.ErrTLS) || !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("%v, want ErrTLS", err)
	}
}

// A user who may not run scripts, or not read our keys, is recognized without a decision.
func TestCheck_Rights(t *testing.T) {
	t.Parallel()
	for what, rights := range map[string][]string{
		"no scripts": {"~weir:*", "+@read", "+@write", "+@connection", "+@pubsub", "+time", "+info"},
		"other keys": {"~other:*", "+@read", "+@write", "+@scripting", "+@connection", "+@pubsub", "+time", "+info"},
	} {
		server := redistest.Start(t, append([]string{"--user", "default", "off", "--user", "weir", "on", ">s3cret", "resetkeys", "resetchannels", "&weir:*", "-@all"}, rights...)...)
		c := redisstore.ClientConfig{Addrs: []string{server.Addr}, Username: "weir", Password: "s3cret"}
		if _, err := checked(t, c); !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%s: %v, want NOPERM", what, err)
		}
	}
}
