package playbooks

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/weirtest"
)

// Nodes are proxies with one configuration and one store, and the application behind them.
type Nodes []*proxy.Proxy

// Start starts a proxy for each of the stores. The text is a configuration whose upstream is UPSTREAM.
func Start(tb testing.TB, text string, stores ...limiter.AdminStore) Nodes {
	tb.Helper()
	nodes, _ := StartMeasured(tb, text, stores...)
	return nodes
}

// StartMeasured is Start, and returns the metrics of the last proxy.
func StartMeasured(tb testing.TB, text string, stores ...limiter.AdminStore) (nodes Nodes, metrics *prometheus.Registry) {
	tb.Helper()
	application := httptest.NewServer(http.HandlerFunc(answer))
	tb.Cleanup(application.Close)
	path := filepath.Join(tb.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "UPSTREAM", application.URL)), 0o600); err != nil {
		tb.Fatal(err)
	}
	nodes = make(Nodes, len(stores))
	for i, store := range stores {
		c, err := config.Load(path)
		if err != nil {
			tb.Fatal(err)
		}
		metrics = prometheus.NewRegistry()
		o := proxy.Options{Path: path, Config: c, Store: store, Registry: metrics, Log: zerolog.Nop(), Nodes: func() int { return len(stores) }}
		if nodes[i], err = proxy.New(tb.Context(), o); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(nodes[i].Close)
	}
	return nodes, metrics
}

// answer is the application: it sends every code, and takes the right one.
func answer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/sms/verify" && r.Header.Get("X-Code") != right {
		w.WriteHeader(http.StatusForbidden)
	}
}

// Send has the nodes answer in turn.
func (n Nodes) Send(asked Request) int {
	r := httptest.NewRequest("POST", asked.Path, strings.NewReader(fmt.Sprintf(`{"phone":%q}`, asked.Number)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Forwarded-For", asked.ClientAddress)
	r.Header.Set("X-Code", asked.Code)
	r.RemoteAddr = "10.0.0.1:40000"
	return weirtest.Exchange(n[asked.Count%len(n)], r).Code
}
