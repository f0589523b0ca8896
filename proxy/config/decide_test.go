package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDecide_RefusesKeysThatAPeerDoesNotSend takes all kinds of peers: those of listen.decide.http by dialect, and
// Envoy by a route for descriptors. The files bad-decide-body and bad-descriptor have what is said in full.
func TestDecide_RefusesKeysThatAPeerDoesNotSend(t *testing.T) {
	sends := map[string]string{ // by the kind of key, who sends what it is read from
		"json:/phone": "traefik apisix haproxy", "form:phone": "traefik apisix haproxy", "header:X-Phone": "nginx caddy traefik apisix haproxy",
		"query:phone": "nginx caddy traefik apisix haproxy", "cookie:phone": "nginx caddy traefik apisix haproxy", "client_ip": "nginx caddy traefik apisix haproxy",
		"host": "nginx caddy traefik apisix haproxy", "global": "nginx caddy traefik apisix haproxy envoy", "descriptor:phone": "envoy",
	}
	for origin, who := range sends {
		for _, peer := range []string{"nginx", "caddy", "traefik", "apisix", "haproxy", "envoy"} {
			listener, match := fmt.Sprintf("{http: '127.0.0.1:8082', dialect: %s}", peer), "{path: /a}"
			if peer == "envoy" {
				listener, match = "{grpc: '127.0.0.1:8081'}", "{domain: edge, descriptor: {phone: '*'}}"
			}
			path := filepath.Join(t.TempDir(), "weir.yaml")
			text := fmt.Sprintf("listen: {http: none, decide: %s}\nroutes: [{match: %s, limits: [{key: '%s', rate: 1/1h}]}]\n", listener, match, origin)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path)
			if want := strings.Contains(who, peer); (err == nil) != want {
				t.Errorf("%s asked by %s: %v; want it accepted: %v", origin, peer, err, want)
			}
			if err != nil && !strings.Contains(err.Error(), "; ") {
				t.Errorf("%s asked by %s: %v; want what to write instead", origin, peer, err)
			}
		}
	}
}
