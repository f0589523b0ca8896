package node

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/redistest"
)

// A process is known by where it listens, also after a restart; with a port that the
// system chooses there is no such name.
func TestStore_ClientName(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for want, listen := range map[string]config.Listen{
		host + " :8080 ":      {HTTP: ":8080"},
		host + " :8080 :8443": {HTTP: ":8080", HTTPS: ":8443"},
	} {
		if got := clientName(listen); got != want {
			t.Errorf("%+v is known as %q; want %q", listen, got, want)
		}
	}
	for _, listen := range []config.Listen{{HTTP: "127.0.0.1:0"}, {HTTP: ":8080", HTTPS: ":0"}} {
		if got := clientName(listen); got != "" {
			t.Errorf("%+v is known as %q; want no name", listen, got)
		}
	}
}

func TestStore_RedisTLS(t *testing.T) {
	if got := redisTLS(nil); got != nil {
		t.Errorf("without redis.tls: %v", got)
	}
	roots, cert := x509.NewCertPool(), &tls.Certificate{}
	got := redisTLS(&config.UpstreamTLS{Roots: roots, ServerName: "redis.example", Certificate: cert})
	if got.RootCAs != roots || got.ServerName != "redis.example" || len(got.Certificates) != 1 || got.MinVersion != tls.VersionTLS12 {
		t.Errorf("redis.tls = %+v", got)
	}
	if got := redisTLS(&config.UpstreamTLS{}); len(got.Certificates) != 0 {
		t.Errorf("without a certificate of our own: %v", got.Certificates)
	}
}

func TestStore_OfOneProcess(t *testing.T) {
	s, err := openStore(&config.Config{Store: config.StoreMemory}, zerolog.Nop(), "v1")
	if err != nil || s.kind != "memory" || s.cluster != nil || s.client != nil {
		t.Fatalf("store = %+v, %v", s, err)
	}
	if _, err := s.check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
	s.run(t.Context(), "") // returns: there is nobody to hear of it
	s.close()
}

// Each process has an id of its own, that says on which machine it runs.
func TestStore_NodeID(t *testing.T) {
	host, err := os.Hostname()
	if got := nodeID(); err != nil || !strings.HasPrefix(got, host+"-") || strings.Count(strings.TrimPrefix(got, host), "-") != 2 {
		t.Errorf("id %q", got)
	}
}

// What a Redis is that cannot be reached, or does not let us in, is known from check.
func TestStore_Check(t *testing.T) {
	server := redistest.Start(t)
	o, _ := newTestSource(t)
	s := opened(t, o, server.Addr)
	if _, err := s.check(t.Context()); err != nil {
		t.Fatalf("check: %v", err)
	}
	server.Kill()
	if _, err := s.check(t.Context()); err == nil {
		t.Error("check of a Redis that is gone: no error")
	}
}

// The figures tell of the other nodes, and of permits that are counted late.
func TestStore_Figures(t *testing.T) {
	n, _ := startFollower(t, redistest.Start(t).Addr)
	metrics := fetch(t, "http://"+n.Address("admin")+"/metrics")
	for _, want := range []string{
		"\nweir_cluster_nodes 1\n", "\nweir_cluster_config_drift 0\n",
		"\n" + `weir_store_reported_permits_total{result="counted"} 0` + "\n", "\n" + `weir_store_reported_permits_total{result="lost"} 0` + "\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in the figures", strings.TrimSpace(want))
		}
	}
}
