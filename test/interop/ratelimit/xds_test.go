package ratelimit

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	limits "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	theirs "github.com/envoyproxy/ratelimit/src/config"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	envoy "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// node is how Envoy Gateway calls the rate limit service that it starts.
const node = "envoy-ratelimit"

// TestMain builds Weir under the name by which Envoy Gateway starts it.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "weir-ratelimit-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		built, err := weirtest.Build(dir)
		if err == nil {
			err = os.Symlink(built, filepath.Join(dir, "ratelimit"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		os.Setenv("WEIR_AS_RATELIMIT", filepath.Join(dir, "ratelimit"))
		return m.Run()
	}())
}

// certificates writes tls.crt, tls.key and ca.crt, as Envoy Gateway mounts them, and returns the
// configuration of a server and client with them.
func certificates(t *testing.T, dir string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "envoy"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, made, made, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, secret := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	for name, text := range map[string][]byte{"tls.crt": cert, "ca.crt": cert, "tls.key": secret} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(cert, secret)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
}

// A controlPlane is an xDS server as Envoy Gateway has it.
type controlPlane struct {
	*testing.T
	cache    cache.SnapshotCache
	requests chan *discovery.DiscoveryRequest
	address  string
	secure   *tls.Config
	server   *grpc.Server
}

func newControlPlane(t *testing.T, secure *tls.Config) *controlPlane {
	c := &controlPlane{T: t, cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil), requests: make(chan *discovery.DiscoveryRequest, 100), address: redistest.FreeAddr(t), secure: secure}
	c.start()
	t.Cleanup(func() { c.server.Stop() })
	return c
}

// start listens, at the same address each time.
func (c *controlPlane) start() {
	c.Helper()
	l, err := net.Listen("tcp", c.address)
	if err != nil {
		c.Fatal(err)
	}
	c.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(c.secure)))
	discovery.RegisterAggregatedDiscoveryServiceServer(c.server, server.NewServer(context.Background(), c.cache, server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			c.requests <- r
			return nil
		},
	}))
	go c.server.Serve(l)
}

// set makes resources the next version.
func (c *controlPlane) set(version string, all ...*limits.RateLimitConfig) {
	c.Helper()
	var resources []types.Resource
	for _, r := range all {
		resources = append(resources, r)
	}
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: resources})
	if err == nil {
		err = c.cache.SetSnapshot(context.Background(), node, snapshot)
	}
	if err != nil {
		c.Fatal(err)
	}
}

// answered returns the first request with the version, or the first NACK for "".
func (c *controlPlane) answered(version string) *discovery.DiscoveryRequest {
	c.Helper()
	for {
		r := await.Value(c, c.requests, "a request for version "+version)
		if r.GetNode().GetId() != node || r.GetTypeUrl() != resource.RateLimitConfigType {
			c.Errorf("request of node %q for %s", r.GetNode().GetId(), r.GetTypeUrl())
		}
		if version == "" && r.ErrorDetail != nil || version != "" && r.VersionInfo == version && r.ErrorDetail == nil {
			return r
		}
	}
}

// rule returns a rule of limits; those of Envoy Gateway have keys that are their values.
func rule(key, value string, unit limits.RateLimitUnit, count uint32, below ...*limits.RateLimitDescriptor) *limits.RateLimitDescriptor {
	d := &limits.RateLimitDescriptor{Key: key, Value: value, Descriptors: below}
	if count > 0 {
		d.RateLimit = &limits.RateLimitPolicy{Unit: unit, RequestsPerUnit: count}
	}
	return d
}

// start starts Weir with the environment that Envoy Gateway gives to a rate limit service, except for ports and
// folders, and returns the addresses of its services.
func start(t *testing.T, c *controlPlane, dir, redis string) (rpc, health, metrics string) {
	t.Helper()
	rpc, health, metrics = redistest.FreeAddr(t), redistest.FreeAddr(t), redistest.FreeAddr(t)
	_, rpcPort, _ := net.SplitHostPort(rpc)
	_, healthPort, _ := net.SplitHostPort(health)
	cmd := exec.Command(os.Getenv("WEIR_AS_RATELIMIT"))
	cmd.Dir = t.TempDir()
	certs := func(name string) string { return filepath.Join(dir, name) }
	cmd.Env = []string{
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false", "LOG_LEVEL=info", "USE_STATSD=false",
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + c.address, "CONFIG_GRPC_XDS_NODE_ID=" + node,
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=" + certs("tls.crt"), "GRPC_SERVER_TLS_KEY=" + certs("tls.key"), "GRPC_SERVER_TLS_CA_CERT=" + certs("ca.crt"),
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + certs("tls.crt"), "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + certs("tls.key"),
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + certs("ca.crt"), "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=" + metrics, "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
		"HOST=127.0.0.1", "PORT=" + healthPort, "GRPC_HOST=127.0.0.1", "GRPC_PORT=" + rpcPort,
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("weir: %v", err)
		}
		if t.Failed() {
			t.Log(said.String())
		}
	})
	await.Until(t, "weir is healthy", func() bool { return get("http://"+health+"/healthcheck") == "200 OK" })
	return rpc, health, metrics
}

// get returns the status and the body at a URL.
func get(url string) string {
	r, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return fmt.Sprint(r.StatusCode, " ", string(body))
}

// A client is Envoy.
type client struct {
	*testing.T
	service.RateLimitServiceClient
}

func dial(t *testing.T, address string, secure *tls.Config) (*client, *grpc.ClientConn) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(secure)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t, service.NewRateLimitServiceClient(conn)}, conn
}

// allows asks about a descriptor of "key=value" entries.
func (c *client) allows(domain string, entries ...string) bool {
	c.Helper()
	d := &envoy.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &envoy.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	r, err := c.ShouldRateLimit(c.Context(), &service.RateLimitRequest{Domain: domain, Descriptors: []*envoy.RateLimitDescriptor{d}})
	if err != nil {
		c.Fatal(err)
	}
	return r.OverallCode == service.RateLimitResponse_OK
}

// Weir takes the place of the rate limit service that Envoy Gateway starts: with the same environment, it gets
// limits, serves them to Envoy, and says which ones it refuses.
func TestXDS_WeirInThePlaceOfRatelimit(t *testing.T) {
	dir := t.TempDir()
	secure := certificates(t, dir)
	c := newControlPlane(t, secure)
	rpc, health, metrics := start(t, c, dir, redistest.Start(t).Addr)
	envoy, conn := dial(t, rpc, secure)
	if !envoy.allows("default/eg/http", "a=a") {
		t.Error("a descriptor is refused before there are limits")
	}

	const route = "httproute/default/backend/rule/0/match/0/*_example_com"
	first := &limits.RateLimitConfig{Name: "default/eg/http", Domain: "default/eg/http", Descriptors: []*limits.RateLimitDescriptor{
		rule(route, route, 0, 0, rule("rule-0-match-0", "", limits.RateLimitUnit_HOUR, 2), rule("rule-1-match-0", "rule-1-match-0", limits.RateLimitUnit_WEEK, 1)),
	}}
	other := &limits.RateLimitConfig{Name: "shared", Domain: "default/policy", Descriptors: []*limits.RateLimitDescriptor{
		rule("rule-0-match--1", "rule-0-match--1", limits.RateLimitUnit_YEAR, 3),
	}}
	c.set("1", first, other)
	c.answered("1")
	for i, want := range []bool{true, true, false} {
		if got := envoy.allows("default/eg/http", route+"="+route, "rule-0-match-0=ann"); got != want {
			t.Errorf("request %d of ann: allowed %v", i, got)
		}
		if got := envoy.allows("default/eg/http", route+"="+route, "rule-0-match-0=bob"); got != want {
			t.Errorf("request %d of bob: allowed %v", i, got)
		}
	}
	for i, want := range []bool{true, false} {
		if got := envoy.allows("default/eg/http", route+"="+route, "rule-1-match-0=rule-1-match-0"); got != want {
			t.Errorf("request %d of rule 1: allowed %v", i, got)
		}
	}

	// What cannot be served is refused, and what was served before is served on.
	c.set("2", &limits.RateLimitConfig{Name: "a", Domain: "a", Descriptors: []*limits.RateLimitDescriptor{
		rule("k", "v", limits.RateLimitUnit_HOUR, 1), rule("k", "v", limits.RateLimitUnit_HOUR, 2),
	}})
	if nack := c.answered(""); nack.VersionInfo != "1" || !strings.Contains(nack.ErrorDetail.Message, "the descriptor k: v is there already") {
		t.Errorf("refused with version %s: %v", nack.VersionInfo, nack.ErrorDetail)
	}
	if envoy.allows("default/eg/http", route+"="+route, "rule-0-match-0=ann") {
		t.Error("after refused limits, those before are not served")
	}

	// Without the control plane the limits hold, and the next ones arrive when it is back.
	c.server.Stop()
	if envoy.allows("default/eg/http", route+"="+route, "rule-0-match-0=ann") {
		t.Error("without the control plane the limits are not served")
	}
	c.set("3")
	c.start()
	if r := c.answered("1"); r.ResponseNonce != "" {
		t.Errorf("a new stream begins with nonce %q", r.ResponseNonce)
	}
	c.answered("3")
	if !envoy.allows("default/eg/http", route+"="+route, "rule-0-match-0=ann") {
		t.Error("limits that are gone are served")
	}

	if got := get("http://" + metrics + "/metrics"); !strings.Contains(got, "weir_") {
		t.Errorf("metrics: %.200s", got)
	}
	if got := get("http://" + health + "/healthcheck"); got != "200 OK" {
		t.Errorf("health: %s", got)
	}
	if r, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil || r.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health by gRPC: %v, %v", r, err)
	}
	stranger, _ := dial(t, rpc, &tls.Config{RootCAs: secure.RootCAs})
	if _, err := stranger.ShouldRateLimit(t.Context(), &service.RateLimitRequest{Domain: "a"}); status.Code(err) != codes.Unavailable {
		t.Errorf("a client without a certificate: %v", err)
	}
}

// Each configuration that Envoy Gateway makes in its own tests is served.
func TestXDS_ConfigurationsOfEnvoyGateway(t *testing.T) {
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/envoyproxy/gateway@v1.9.1").Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	files, globErr := filepath.Glob(filepath.Join(module.Dir, "internal/xds/translator/testdata/out/ratelimit-config/*.yaml"))
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, ".routes.yaml") })
	if err != nil || globErr != nil || len(files) < 20 {
		t.Fatalf("%d configurations: %v, %v", len(files), err, globErr)
	}

	dir := t.TempDir()
	secure := certificates(t, dir)
	c := newControlPlane(t, secure)
	start(t, c, dir, redistest.Start(t).Addr)
	for i, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var all []*limits.RateLimitConfig
		for _, one := range strings.Split(string(text), "\nname: ") {
			_, rest, _ := strings.Cut(one, "\n") // ratelimit knows no field name
			all = append(all, toXDS(theirs.ConfigFileContentToYaml(f, rest)))
		}
		version := fmt.Sprint(i + 1)
		c.set(version, all...)
		c.answered(version)
	}
}

// toXDS is the inverse of ConfigXdsProtoToYaml.
func toXDS(y *theirs.YamlRoot) *limits.RateLimitConfig {
	return &limits.RateLimitConfig{Name: y.Domain, Domain: y.Domain, Descriptors: descriptorsToXDS(y.Descriptors)}
}

func descriptorsToXDS(all []theirs.YamlDescriptor) (made []*limits.RateLimitDescriptor) {
	for _, d := range all {
		m := &limits.RateLimitDescriptor{Key: d.Key, Value: d.Value, ShadowMode: d.ShadowMode, DetailedMetric: d.DetailedMetric, Descriptors: descriptorsToXDS(d.Descriptors)}
		if l := d.RateLimit; l != nil {
			m.RateLimit = &limits.RateLimitPolicy{Unit: limits.RateLimitUnit(limits.RateLimitUnit_value[strings.ToUpper(l.Unit)]), RequestsPerUnit: l.RequestsPerUnit, Unlimited: l.Unlimited, Name: l.Name}
		}
		made = append(made, m)
	}
	return made
}
