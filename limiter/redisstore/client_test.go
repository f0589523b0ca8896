package redisstore_test

import (
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/certtest"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/redistest"
)

func TestNewClient_RefusesNonsense(t *testing.T) {
	for name, c := range map[string]redisstore.ClientConfig{
		"mode":          {Mode: "ring", Addrs: []string{"a:1"}},
		"no address":    {},
		"two addresses": {Addrs: []string{"a:1", "b:1"}},
		"no port":       {Addrs: []string{"a"}},
		"empty port":    {Addrs: []string{"a:"}},
		"no master":     {Mode: redisstore.Sentinel, Addrs: []string{"a:1"}},
		"cluster db":    {Mode: redisstore.Cluster, Addrs: []string{"a:1"}, DB: 1},
	} {
		if _, err := redisstore.NewClient(c); !errors.Is(err, redisstore.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The breaker of a client keeps a dead Redis from being asked.
func TestNewClient_HasABreaker(t *testing.T) {
	client := clientOf(t, redisstore.ClientConfig{Addrs: []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(redistest.FreePort(t)))}, BreakAfter: 3, BreakRest: time.Minute})
	s := redisstore.New(client, redisstore.Options{Timeout: patient})
	var d limiter.Decision
	for i := range 6 {
		err := s.Take(t.Context(), claim(1, time.Minute, 1), &d)
		if !errors.Is(err, limiter.ErrUnavailable) || errors.Is(err, redisstore.ErrOpen) != (i >= 3) {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
}

// After a rest the breaker tries, over a new connection if need be, and closes.
func TestNewClient_ComesBack(t *testing.T) {
	server := redistest.Start(t)
	client := clientOf(t, redisstore.ClientConfig{Addrs: []string{server.Addr}, Timeout: patient, BreakAfter: 2, BreakRest: 50 * time.Millisecond})
	s := redisstore.New(client, redisstore.Options{Timeout: patient})
	c := claim(1000, time.Minute, 1)
	var d limiter.Decision
	server.Kill()
	eventually(t, "the breaker is open", func() bool { return errors.Is(s.Take(t.Context(), c, &d), redisstore.ErrOpen) })
	server.Restart()
	eventually(t, "Redis is back", func() bool { return s.Take(t.Context(), c, &d) == nil })
}

// TLS and an ACL user that may touch nothing but our keys.
func TestNewClient_TLSAndUser(t *testing.T) {
	t.Parallel()
	cert, key := certtest.New(t, "redis.test")
	dir := t.TempDir()
	port := redistest.FreePort(t)
	redistest.Start(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", filetest.Write(t, cert, dir, "cert.pem"), "--tls-key-file", filetest.Write(t, key, dir, "key.pem"),
		"--tls-auth-clients", "no", "--user", "default", "off",
		"--user", "weir", "on", ">s3cret", "resetkeys", "~weir:*", "resetchannels", "&weir:*", "-@all",
		"+@read", "+@write", "+@scripting", "+@connection", "+@pubsub", "+time", "+info")
	c := redisstore.ClientConfig{
		Addrs: []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}, Timeout: patient,
		Username: "weir", Password: "s3cret", TLS: &tls.Config{RootCAs: certtest.Trusting(cert), ServerName: "redis.test"},
	}
	s := storeOn(t, clientOf(t, c), redisstore.Options{Timeout: patient})
	var d limiter.Decision
	if err := s.Take(t.Context(), claim(1, time.Minute, 1), &d); err != nil || !d.Allowed {
		t.Fatalf("over TLS: %+v %v", d, err)
	}
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	(&testStore{t: t}).until("the store hears", s.Hears)
	c.Password = "wrong"
	wrong := clientOf(t, c)
	s = redisstore.New(wrong, redisstore.Options{Timeout: patient})
	if err := s.Take(t.Context(), claim(1, time.Minute, 1), &d); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("wrong password: %v", err)
	}
}

func TestCheck_Versions(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]error{
		"redis_version:7.0.15\r\n":                        nil,
		"redis_version:6.2.0":                             nil,
		"redis_version:10.0.0":                            nil,
		"redis_version:6.0.16\r\n":                        redisstore.ErrVersion,
		"redis_version:5.0":                               redisstore.ErrVersion,
		"redis_version:7.2.4\r\nvalkey_version:8.0.1\r\n": nil,
		"redis_version:7.2.4\r\nvalkey_version:7.2.5\r\n": nil,
		"redis_version:7.2.4\r\nvalkey_version:7.1.9\r\n": redisstore.ErrVersion,
		"# Server\r\nredis_mode:standalone":               redisstore.ErrVersion,
		"redis_version:seven":                             redisstore.ErrVersion,
		"":                                                redisstore.ErrVersion,
	} {
		if err := redisstore.CheckVersion(info); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", info, err, want)
		}
	}
	s := newOwnTestStore(t)
	if _, err := s.store.Check(t.Context()); err != nil {
		t.Errorf("a real server: %v", err)
	}
	s.server.Kill()
	if _, err := s.store.Check(t.Context()); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("a dead server: %v", err)
	}
}
